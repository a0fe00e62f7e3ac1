"""How much longer copies take in which a slow-down is planted, each beside the one without.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters G=experiments/gpu
    python $G/record_pairs.py plan --plan pairs.json
    python $G/ab_planted.py measure --plan pairs.json --out samples.json --limit-s 60
    python $G/ab_planted.py judge --samples samples.json --out planted.json

It measures the cells of `record_pairs`, alternately in one process, so that what that plants is
known by its true size; beside itself, what nothing is planted in must cost nothing. The second
command needs a CUDA device with what `record_pairs` needs, the others the environment.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from record_pairs import cache_of, write_planted

DELTA = 0.01
PAIR_COLUMNS = "status", "message", "launches", "a_s", "b_s"


def main() -> None:
    """Measure, or judge what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("measure", "judge"))
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--samples", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--limit-s", type=float, default=60.0)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    try:
        if options.step == "measure":
            plans = json.loads(options.plan.read_text())["plans"]
            rows.extend(measured(plans, options.blocks, options.out, options.limit_s))
        else:
            rows.extend(judged_rows(json.loads(options.samples.read_text())))
    finally:
        # What was measured before a fault is kept.
        options.out.write_text(json.dumps(rows, indent=1))


def measured(
    plans: list[dict[str, Any]], blocks: int, out: Path, limit_s: float
) -> Iterator[dict[str, Any]]:
    """A row for each pair of cells: what was planted, which cell it is, its samples in seconds.

    After `limit_s` no pair is begun.
    """
    from gpushmoo.measuring.events import Against, Job
    from gpushmoo.measuring.job import measure_pairs

    begin = time.monotonic()
    write_planted()
    cache = cache_of(out.parent)
    cache.mkdir(parents=True, exist_ok=True)
    planted = {(sweep, dtype) for sweep, dtype, *_ in plans[-1]["shards"]}
    usual = {tuple(told[:3]): told[4] for told in plans[0]["shards"]}
    # What is planted most first: a short time then tells most.
    shards = [(plan["run"], *told) for plan in reversed(plans) for told in plan["shards"]]
    for run, sweep, dtype, name, _, params in shards:
        if (sweep, dtype) not in planted or time.monotonic() - begin > limit_s:
            continue
        against = Against(params, ((), ()), blocks)
        log = out.with_suffix(".log")
        job = Job(usual[sweep, dtype, name], cache, time.monotonic(), against=against, log=log)
        done = measure_pairs(job, f"{run} {sweep} {dtype}", sys.stdout)
        for place, pair in enumerate(done.runs):
            yield {
                "planted": run,
                "device": done.opened.info.name,
                "dtype": dtype,
                "height": pair.cell.problem.height,
                **dict(pair.cell.params),
                "place": place,
                **{name: getattr(pair, name) for name in PAIR_COLUMNS},
            }


def judged_rows(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows with the change in place of the samples, judged together for what was planted."""
    from gpushmoo.comparing.verdicts import block_changes, judged, paired_change

    for planted in dict.fromkeys(row["planted"] for row in rows):
        some = [row for row in rows if row["planted"] == planted and row["status"] == "ok"]
        changes = [paired_change(block_changes(row["a_s"], row["b_s"]), DELTA) for row in some]
        for row, change, (verdict, beyond) in zip(some, changes, judged(changes), strict=True):
            which = {k: v for k, v in row.items() if k not in ("a_s", "b_s", "message", "status")}
            yield {**which, **asdict(change), "verdict": verdict, "beyond": beyond}


if __name__ == "__main__":
    main()
