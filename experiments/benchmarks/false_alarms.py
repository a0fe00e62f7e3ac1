"""How often runs of the same thing raise an alarm, and how often planted work is found.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/benchmarks/false_alarms.py one OUT.json CELLS
    python experiments/benchmarks/false_alarms.py between OUT.json HOST HOST ...
    python experiments/benchmarks/false_alarms.py known RUN RUN ...
    python experiments/benchmarks/false_alarms.py again OUT.json CELLS CELLS

``one``: CELLS is a folder of runs as `record_pairs.py` measures them: ``r00``, ``r01``, ... of the
same thing, ``planted-03-00``, ... with 3 % of work planted. Runs 2i and 2i + 1 are a pair, so each
run is in one pair only. A planted run i is compared with run 2i + 1. ``between``: each HOST is such
a folder of one host; the first half of each host's runs is compared with the second half of the
next one's. Run-to-run spread is estimated from the unplanted runs that are not of the pair.
``known`` writes the spread of runs of the same thing for `comparing/known_spreads`. ``again``: does
what one run says hold in another? Of two runs with honest 95 % intervals of equal width 0.6 % are
disjoint and 83 % hold the other's median. Needs no device.

Beside ours, the published rules by which other tools call a cell slower:

* nvbench, ``nvbench_compare.py`` (its rule up to 2025, since 2026 ``nvbench_compare_legacy.py``):
  the means differ by more than the smaller of both relative standard deviations.
* nvbench, ``nvbench_compare_robust.py`` (2026, preset ``default``): between the intervals from the
  smallest sample to the third quartile is a gap of 0.5 % or more.
* google/benchmark, ``compare.py`` (1.9): Mann and Whitney's U test, p < 0.05, from two repetitions
  on; no correction for the number of benchmarks.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from gpushmoo import PROTOCOL_VERSION
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import tied_best
from gpushmoo.analysis.statistics import ClassSpread
from gpushmoo.comparing.compare import DELTA, compare_runs
from gpushmoo.comparing.false_alarms import MIN_BESIDE, Rate
from gpushmoo.comparing.runs import (
    RunCells,
    RunLevel,
    bests,
    class_text,
    device_uuids,
    known_file,
    levels_of,
    read_run,
    swept_by_all,
    usual_spreads,
)
from gpushmoo.core.schema import GROUP, Status
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import unpacked
from scipy.stats import mannwhitneyu

PLANTED_KERNEL = "copy_planted"
Samples = npt.NDArray[np.float64]
Rule = Callable[[Samples, Samples], bool]

CLEAR_GAP = 0.005
ALPHA = 0.05
INTERVAL = ["median_s", "median_low_s", "median_high_s"]


def nvbench(first: Samples, second: Samples) -> bool:
    """Whether the mean of `second` is larger by more than the smaller noise."""
    mean = float(first.mean())
    noise = min(float(s.std(ddof=1) / s.mean()) for s in (first, second))
    return (float(second.mean()) - mean) / mean > noise


def nvbench_robust(first: Samples, second: Samples) -> bool:
    """Whether the smallest of `second` is well above the third quartile of `first`."""
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


def slower(sides: Sequence[pd.DataFrame]) -> dict[str, int]:
    """How many of the cells that both sides have each rule calls slower."""
    index = sides[0].index.intersection(sides[1].index)
    samples = [[np.asarray(s, float) for s in side.loc[index, "samples_s"]] for side in sides]
    pairs = list(zip(*samples, strict=True))
    return {name: sum(rule(a, b) for a, b in pairs) for name, rule in RULES.items()}


def judged(folder: Path, delta: float = DELTA) -> dict[str, Any]:
    """Rates of alarms among the runs of the same thing, and of planted ones found."""
    runs = [read_run(path) for path in sorted(folder.glob("r[0-9]*"))]
    levels = levels_of(runs)
    pairs = [
        judged_pair(runs, levels, i, runs[i + 1], (i, i + 1), delta)
        for i in range(0, len(runs) - 1, 2)
    ]
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
        "planted": {f"{int(p)} %": rates(found) for p, found in sorted(planted.items())},
        "pairs": [{k: pair[k] for k in pair if k not in ("groups", "cells")} for pair in pairs],
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
    both, beside = [runs[first], second], len(runs) - len(without)
    usual = usual_spreads(levels, without) if beside >= MIN_BESIDE else None
    found = compare_runs([runs[first]], [second], (), delta, usual)
    groups, planted = found.groups, found.groups["kernel"] == PLANTED_KERNEL
    slow, slow_mean = (groups[v] == "slower" for v in ("verdict", "group_mean_verdict"))
    return {
        "names": [run.name for run in both],
        "groups": len(groups),
        "cells": len(found.cells),
        "alarms": len(found.slower),
        "slower_groups": int(slow.sum()),
        "slower_wholes": int(slow_mean.sum()),
        "slower_planted": int((slow & planted).sum()),
        "slower_planted_wholes": int((slow_mean & planted).sum()),
        "slower_cells": int((found.cells["verdict"] == "slower").sum()),
        "largest_change": float(groups["change"].max()),
        "half_width": float(((groups["change_high"] - groups["change_low"]) / 2).median()),
        "rivals_cells": slower([run.ok for run in both]),
        # Only the best cells of each group, because our guard compares no others.
        "rivals_bests": slower([bests(run, swept_by_all(both)) for run in both]),
    }


def rates(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """In how many pairs there is any of each."""
    ours = ("alarms", "slower_groups", "slower_wholes", "slower_cells")
    ours += ("slower_planted", "slower_planted_wholes")
    found = {name: _rate([bool(pair[name]) for pair in pairs]) for name in ours}
    for rule, what in product(RULES, ("cells", "bests")):
        slow = [bool(pair[f"rivals_{what}"][rule]) for pair in pairs]
        found[f"{rule} ({what})"] = _rate(slow)
    half_widths = sorted(pair["half_width"] for pair in pairs)
    return {**found, "half_width_median": half_widths[len(pairs) // 2]}


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
    counts, largest = [len(of_host) for of_host in by_host], max(p["largest_change"] for p in pairs)
    found = {"devices": len(device_uuids(runs)), "runs": counts, "delta": delta}
    return {**found, "same": rates(pairs), "largest_change": largest, "pairs": pairs}


def places(counts: list[int]) -> list[tuple[int, int, tuple[int, int]]]:
    """Return pairs of indices among all runs, each index once, and the hosts of each pair."""
    first = [sum(counts[:host]) for host in range(len(counts))]
    found = []
    for host, count in enumerate(counts):
        following = (host + 1) % len(counts)
        half = counts[following] // 2
        for k in range(min(count // 2, counts[following] - half)):
            found.append((first[host] + k, first[following] + half + k, (host, following)))
    return found


def write_spreads(runs: Sequence[RunCells]) -> Path:
    """Write the spread between `runs` of the same thing on one device model; return the file."""

    def plain(spread: ClassSpread) -> dict[str, float | None]:
        # Infinity is null in JSON.
        df = None if np.isinf(spread.own.df) else spread.own.df
        shared = {"shared": spread.shared, "shared_df": spread.shared_df}
        return {"own": spread.own.variance, "own_df": df, **shared}

    (name,) = {name for run in runs for name in run.cells["device_name"]}
    days = sorted(shard["written_at"][:10] for run in runs for shard in run.provenance)
    kinds = {}
    for kind, spreads in usual_spreads(levels_of(runs)).items():
        classes = {class_text(c): plain(s) for c, s in sorted(spreads.classes.items(), key=str)}
        kinds[kind] = {"classes": classes, "whole": plain(spreads.whole)}
    measured = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    told = {"device_name": name, "devices": len(device_uuids(runs)), "runs": len(runs)}
    file = known_file(name)
    told |= {"measured": measured, "protocol_version": PROTOCOL_VERSION}
    text = json.dumps({**told, "kinds": kinds}, indent=1)
    file.write_text(text + "\n", encoding="utf-8")
    return file


def cells_of(folder: Path) -> pd.DataFrame:
    """The aggregated ``ok`` cells of the shards under `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        aggregate(sorted(unpacked(folder).rglob("*.parquet")), Path(scratch) / "dataset")
        cells = read_cells(Path(scratch) / "dataset")
    return cells[cells["status"] == Status.OK]


def agreement(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, Any]:
    """How often intervals and winners of one run agree with the other's.

    ``disjoint``: share of the cells whose intervals do not meet; ``holding``: share of the medians
    that are in the other run's interval, both ways; ``winner_tied``: share of the groups in which
    one run's fastest cell is in the other's tied set, both ways.
    """
    told = [cells.set_index("cell_key")[INTERVAL] for cells in (first, second)]
    both = told[0].merge(told[1], left_index=True, right_index=True, suffixes=("_a", "_b"))
    disjoint = (both["median_low_s_a"] > both["median_high_s_b"]) | (
        both["median_low_s_b"] > both["median_high_s_a"]
    )
    holding = [
        both[f"median_s_{x}"].between(both[f"median_low_s_{y}"], both[f"median_high_s_{y}"])
        for x, y in ("ab", "ba")
    ]
    found = {"disjoint": float(disjoint.mean()), "holding": float(np.mean(holding))}
    return {"cells": len(both), **found, **_winners(first, second)}


def _winners(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, Any]:
    tied = [
        {key: tied_best(group) for key, group in cells.groupby(list(GROUP), observed=True)}
        for cells in (first, second)
    ]
    size = first.groupby(list(GROUP), observed=True).size()
    common = [key for key in tied[0] if key in tied[1] and size[key] > 1]
    held = [
        tied[a][key]["cell_key"].iloc[0] in set(tied[b][key]["cell_key"])
        for key in common
        for a, b in ((0, 1), (1, 0))
    ]
    return {"groups": len(common), "winner_tied": float(np.mean(held))}


def main() -> None:
    """Write what was found, and print the rates."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("step", choices=("one", "between", "known", "again"))
    parser.add_argument("paths", type=Path, nargs="+")
    given = parser.parse_args()
    if given.step == "known":
        print(write_spreads([read_run(path) for path in given.paths]))
        return
    out, *folders = given.paths
    if given.step == "again":
        found = agreement(*map(cells_of, folders))
        print(found)
    else:
        found = judged(folders[0]) if given.step == "one" else between(folders)
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for what, each in {"same": found.get("same", {}), **found.get("planted", {})}.items():
        for name, rate in each.items():
            if isinstance(rate, dict):
                print(f"{what:10} {name:30} {Rate(rate['hits'], rate['n'])}")


if __name__ == "__main__":
    main()
