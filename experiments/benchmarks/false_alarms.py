"""How often runs of the same thing raise an alarm, and how often planted work is found.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/benchmarks/false_alarms.py one OUT.json CELLS [--every]
    python experiments/benchmarks/false_alarms.py between OUT.json HOST HOST ...
    python experiments/benchmarks/false_alarms.py known RUN RUN ...

``one``: CELLS is a folder of runs as `record_pairs.py` measures them: ``r00``, ``r01``, ... of the
same thing, ``planted-03-00``, ... with 3 % of work planted. Runs 2i and 2i + 1 make a pair in which
no run stands twice; a planted run i is held against run 2i + 1. With ``--every`` all pairs are
judged besides, which are many and share runs. ``between``: each HOST is such a folder of one host;
the first half of each host's runs is held against the second half of the next one's. Run-to-run
spread is estimated from the unplanted runs that are not of the pair. ``known`` writes the spread of
runs of the same thing for `comparing/known_spreads`. Needs no device.

Beside ours, the rules by which other tools call a cell slower, written anew from what they publish:

* nvbench, ``nvbench_compare.py`` (its rule up to 2025, since 2026 ``nvbench_compare_legacy.py``):
  the means differ by more than the smaller of both relative standard deviations.
* nvbench, ``nvbench_compare_robust.py`` (2026, preset ``default``): between the intervals from the
  smallest sample to the third quartile is a gap of 0.5 % or more.
* google/benchmark, ``compare.py`` (1.9): Mann and Whitney's U test, p < 0.05, from two repetitions
  on; no correction for the number of benchmarks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from gpushmoo.analysis.statistics import ClassSpread
from gpushmoo.comparing.compare import DELTA, Comparison, compare_runs
from gpushmoo.comparing.false_alarms import FEWEST_BESIDE, Rate
from gpushmoo.comparing.runs import (
    RunCells,
    RunLevel,
    bests,
    device_uuids,
    known_file,
    levels_of,
    read_run,
    swept_by_all,
    usual_spreads,
)
from scipy.stats import mannwhitneyu

PLANTED_KERNEL = "copy_planted"
Samples = npt.NDArray[np.float64]
Rule = Callable[[Samples, Samples], bool]

CLEAR_GAP = 0.005
ALPHA = 0.05


def nvbench(first: Samples, second: Samples) -> bool:
    """Whether the mean of `second` is larger by more than the smaller noise."""
    mean = float(first.mean())
    noise = min(float(s.std(ddof=1) / s.mean()) for s in (first, second))
    return (float(second.mean()) - mean) / mean > noise


def nvbench_robust(first: Samples, second: Samples) -> bool:
    """Whether the smallest of `second` lies clearly above the third quartile of `first`."""
    upper = float(np.quantile(first, 0.75))
    return (float(second.min()) - upper) / upper >= CLEAR_GAP


def google_benchmark(first: Samples, second: Samples) -> bool:
    """Whether the U test finds a difference and the median of `second` is the larger one."""
    p = float(mannwhitneyu(first, second, alternative="two-sided").pvalue)
    return p < ALPHA and float(np.median(second)) > float(np.median(first))


RULES: Mapping[str, Rule] = {
    "nvbench": nvbench,
    "nvbench_robust": nvbench_robust,
    "google_benchmark": google_benchmark,
}


def slower_cells(first: RunCells, second: RunCells) -> dict[str, int]:
    """How many of the cells that both verified each rule calls slower."""
    index = first.ok.index.intersection(second.ok.index)
    return _counted(first.ok.loc[index], second.ok.loc[index])


def slower_bests(first: RunCells, second: RunCells) -> dict[str, int]:
    """The same of each group's best cells alone, as our guard looks at no other."""
    swept = swept_by_all([first, second])
    sides = [bests(run, swept) for run in (first, second)]
    index = sides[0].index.intersection(sides[1].index)
    return _counted(*(side.loc[index] for side in sides))


def _counted(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, int]:
    pairs = [
        (np.asarray(a, np.float64), np.asarray(b, np.float64))
        for a, b in zip(first["samples_s"], second["samples_s"], strict=True)
    ]
    return {name: sum(rule(a, b) for a, b in pairs) for name, rule in RULES.items()}


def judged(folder: Path, all_pairs: bool = False, delta: float = DELTA) -> dict[str, Any]:
    """Rates of alarms among the runs of the same thing, and of planted ones found."""
    runs = [read_run(path) for path in sorted(folder.glob("r[0-9]*"))]
    levels = levels_of(runs)
    pairs = [
        judged_pair(runs, levels, i, runs[i + 1], (i, i + 1), delta)
        for i in range(0, len(runs) - 1, 2)
    ]
    places = combinations(range(len(runs)), 2) if all_pairs else ()
    every = [judged_pair(runs, levels, i, runs[j], (i, j), delta) for i, j in places]
    planted: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("planted-*")):
        _, per_cent, number = path.name.split("-")
        beside = min(2 * int(number) + 1, len(runs) - 1)
        found = judged_pair(runs, levels, beside, read_run(path), (beside,), delta)
        planted.setdefault(per_cent, []).append(found)
    return {
        "runs": len(runs),
        "devices": len(device_uuids(runs)),
        "device_name": sorted({name for run in runs for name in run.cells["device_name"]}),
        "delta": delta,
        "groups": pairs[0]["groups"],
        "cells": pairs[0]["cells"],
        "same": rates(pairs),
        **({"same_all_pairs": rates(every)} if every else {}),
        "planted": {f"{int(p)} %": rates(found) for p, found in sorted(planted.items())},
        "pairs": [
            {k: v for k, v in pair.items() if k not in ("groups", "cells")} for pair in pairs
        ],
    }


def judged_pair(
    runs: Sequence[RunCells],
    levels: Mapping[str, RunLevel],
    first: int,
    second: RunCells,
    without: tuple[int, ...],
    delta: float,
) -> dict[str, Any]:
    """What ours and the rivals say of one pair."""
    beside = len(runs) - len(without)
    usual = usual_spreads(levels, without) if beside >= FEWEST_BESIDE else None
    found = compare_runs([runs[first]], [second], (), delta, usual)
    # A share planted that is as large as delta is the same where it is known precisely.
    finer = compare_runs([runs[first]], [second], (), delta / 2, usual)
    return {
        "names": [runs[first].name, second.name],
        "groups": len(found.groups),
        "cells": len(found.cells),
        "alarms": len(found.slower),
        "slower_groups": int((found.groups["verdict"] == "slower").sum()),
        "slower_wholes": int((found.groups["whole_verdict"] == "slower").sum()),
        "slower_planted": _slower_planted(found),
        "slower_planted_wholes": _slower_planted(found, "whole_verdict"),
        "slower_planted_at_half_delta": _slower_planted(finer),
        "same_groups": int((found.groups["verdict"] == "same").sum()),
        "slower_cells": int((found.cells["verdict"] == "slower").sum()),
        "largest_change": float(found.groups["change"].max()),
        "half_width": float(
            ((found.groups["change_high"] - found.groups["change_low"]) / 2).median()
        ),
        "rivals_cells": slower_cells(runs[first], second),
        "rivals_bests": slower_bests(runs[first], second),
    }


def _slower_planted(found: Comparison, verdict: str = "verdict") -> int:
    of_kernel = found.groups[found.groups["kernel"] == PLANTED_KERNEL]
    return int((of_kernel[verdict] == "slower").sum())


def rates(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """In how many pairs there is any of each."""
    ours = ("alarms", "slower_groups", "slower_wholes", "slower_cells")
    ours += ("slower_planted", "slower_planted_wholes", "slower_planted_at_half_delta")
    return {
        **{name: _rate([bool(pair[name]) for pair in pairs]) for name in ours},
        **{
            f"{rule} ({what})": _rate([bool(pair[f"rivals_{what}"][rule]) for pair in pairs])
            for rule in RULES
            for what in ("cells", "bests")
        },
        "half_width_median": sorted(pair["half_width"] for pair in pairs)[len(pairs) // 2],
    }


def _rate(found: Sequence[bool]) -> dict[str, Any]:
    rate = Rate(sum(found), len(found))
    return {"hits": rate.hits, "n": rate.n, "share": rate.share, "interval": list(rate.interval)}


def between(hosts: list[Path], delta: float = DELTA) -> dict[str, Any]:
    """Rates of alarms over pairs of runs of two hosts."""
    by_host = [[read_run(path) for path in sorted(host.glob("r[0-9]*"))] for host in hosts]
    runs = [run for of_host in by_host for run in of_host]
    levels = levels_of(runs)
    pairs = [
        {**judged_pair(runs, levels, i, runs[j], (i, j), delta), "hosts": names}
        for i, j, names in places([len(of_host) for of_host in by_host])
    ]
    return {
        "devices": len(device_uuids(runs)),
        "runs": [len(of_host) for of_host in by_host],
        "delta": delta,
        "same": rates(pairs),
        "largest_change": max(pair["largest_change"] for pair in pairs),
        "pairs": pairs,
    }


def places(counts: list[int]) -> list[tuple[int, int, tuple[int, int]]]:
    """Pairs of places among all runs, and of which hosts they are; no place stands twice."""
    first = [sum(counts[:host]) for host in range(len(counts))]
    found = []
    for host, count in enumerate(counts):
        following = (host + 1) % len(counts)
        half = counts[following] // 2
        for k in range(min(count // 2, counts[following] - half)):
            found.append((first[host] + k, first[following] + half + k, (host, following)))
    return found


def write_spreads(runs: Sequence[RunCells]) -> Path:
    """Write how far `runs` of one and the same thing on one device model lie apart; the file."""
    (name,) = {name for run in runs for name in run.cells["device_name"]}
    days = sorted(shard["written_at"][:10] for run in runs for shard in run.provenance)
    told = {
        "device_name": name,
        "devices": len(device_uuids(runs)),
        "runs": len(runs),
        "measured": days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}",
        "kinds": {
            kind: {
                "classes": {str(c): _plain(s) for c, s in sorted(spreads.classes.items(), key=str)},
                "whole": _plain(spreads.whole),
            }
            for kind, spreads in usual_spreads(levels_of(runs)).items()
        },
    }
    file = known_file(name)
    file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return file


def _plain(spread: ClassSpread) -> dict[str, float | None]:
    """As JSON holds it; infinity is null."""
    df = None if np.isinf(spread.own.df) else spread.own.df
    shared = {"shared": spread.shared, "shared_df": spread.shared_df}
    return {"own": spread.own.variance, "own_df": df, **shared}


def main() -> None:
    """Write what was found, and print the rates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=("one", "between", "known"))
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--every", action="store_true")
    given = parser.parse_args()
    if given.step == "known":
        print(write_spreads([read_run(path) for path in given.paths]))
        return
    out, *folders = given.paths
    found = judged(folders[0], given.every) if given.step == "one" else between(folders)
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for what, each in {"same": found["same"], **found.get("planted", {})}.items():
        for name, rate in each.items():
            if isinstance(rate, dict):
                print(f"{what:10} {name:30} {Rate(rate['hits'], rate['n'])}")


if __name__ == "__main__":
    main()
