"""How often runs of the same thing raise an alarm, and how often planted work is found.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/benchmarks/false_alarms.py CELLS OUT.json [every]

CELLS is a folder of runs as `record_pairs.py` measures them: ``r00``, ``r01``, ... of the
same thing, ``planted-03-00``, ... with 3 % of work planted. Needs no device. Runs 2i and 2i + 1
make a pair in which no run stands twice; a planted run i is held against run 2i + 1.
With `every` all pairs are judged besides, which are many and share runs.
How far runs lie apart is told by the unplanted runs that are not of the pair. An alarm is what the
guard ends with at `delta`; a planted share is found where a planted group is called slower.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from compare_rivals import RULES, slower_bests, slower_cells
from gpushmoo.comparing.compare import DELTA, Comparison, compare_runs
from gpushmoo.comparing.false_alarms import FEWEST_BESIDE, Rate
from gpushmoo.comparing.levels import LevelLogs, levels_of, usual_spreads
from gpushmoo.comparing.runs import RunCells, read_run

PLANTED_KERNEL = "copy_planted"


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
        "devices": len({device for run in runs for device in run.devices}),
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
    levels: Mapping[str, LevelLogs],
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


def main(folder: Path, out: Path, all_pairs: bool) -> None:
    """Write what was found, and print the rates."""
    found = judged(folder, all_pairs)
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for what, each in {"same": found["same"], **found["planted"]}.items():
        for name, rate in each.items():
            if isinstance(rate, dict):
                print(f"{what:10} {name:30} {Rate(rate['hits'], rate['n'])}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), "every" in sys.argv[3:])
