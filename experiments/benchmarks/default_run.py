"""Do two default runs on one device find each other's times, and how long do they take?

    snakemake --cores all --config run=a    # and run=b: note the seconds of both
    PYTHONPATH=workflow/scripts python experiments/benchmarks/default_run.py \
        results/a results/b --wall-s 175 171 --out OUT.json

By kernels whose data are on the device and those whose data come from the host: the share of cells
whose 95 % interval holds the other run's median and the share with disjoint intervals, over both
runs; groups whose fastest launch is in the other run's tied set; and half the width of the fastest
launches' intervals. Seconds of measuring are those of all shards, by kernel.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.dataset as pads
from gpushmoo.storage.store import read_shard
from gpushmoo.storage.wholefile import write_json

# The kernels of a default run that are fed by the host, or run on it.
OF_HOST = ("dot_host", "dot_streamed", "dot_square")


def main() -> None:
    """Compare two runs, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs=2)
    parser.add_argument("--wall-s", type=float, nargs=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    record = compared(given.runs) | {"wall_s": given.wall_s}
    if given.out:
        write_json(given.out, record)
    print(json.dumps(record, indent=1))


def compared(runs: list[Path]) -> dict[str, Any]:
    """What two runs say of each other."""
    a, b = (cells_of(run) for run in runs)
    both = a.merge(b, on="cell_key", suffixes=("_a", "_b"))
    best = [pd.read_parquet(run / "summary" / "best.parquet") for run in runs]
    is_fed = both["kernel_a"].isin(OF_HOST)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": str(a["device_name"].iloc[0]),
        "runtime": sorted({shard["device"]["runtime"] for shard in metadata_of(runs[0])}),
        "unsteady": [json.loads((run / "report.json").read_text())["unsteady"] for run in runs],
        "on_device": agreement(both[~is_fed]) | fastest(best, fed=False),
        "of_host": agreement(both[is_fed]) | fastest(best, fed=True),
        "measuring_s": [measuring_s(run) for run in runs],
    }


def cells_of(run: Path) -> pd.DataFrame:
    """The verified cells of a run's data set."""
    table = pads.dataset(run / "dataset", partitioning="hive").to_table()
    cells = table.to_pandas()
    return cells[cells["status"] == "ok"]


def metadata_of(run: Path) -> list[dict[str, Any]]:
    """What each shard's file says besides cells."""
    return [read_shard(file)[1] for file in sorted(run.glob("cells/*/*/*.parquet"))]


def measuring_s(run: Path) -> dict[str, float]:
    """Seconds of measuring by kernel."""
    found: dict[str, float] = {}
    for shard in metadata_of(run):
        kernel = Path(shard["params"]["folder"]).name
        found[kernel] = found.get(kernel, 0.0) + shard["measuring"]["seconds"]
    return {kernel: round(seconds, 1) for kernel, seconds in sorted(found.items())}


def agreement(both: pd.DataFrame) -> dict[str, float]:
    """How many cells' intervals hold the other run's median, and how many are disjoint."""
    held = [
        both[f"median_s_{other}"].between(both[f"median_low_s_{one}"], both[f"median_high_s_{one}"])
        for one, other in (("a", "b"), ("b", "a"))
    ]
    disjoint = (both["median_low_s_a"] > both["median_high_s_b"]) | (
        both["median_low_s_b"] > both["median_high_s_a"]
    )
    change = (both["median_s_b"] / both["median_s_a"] - 1.0).abs()
    return {
        "cells": len(both),
        "holding": float(np.mean([h.mean() for h in held])),
        "holding_least": float(min(h.mean() for h in held)),
        "disjoint": float(disjoint.mean()),
        "change_median": float(change.median()),
        "change_p95": float(change.quantile(0.95)),
    }


def fastest(best: list[pd.DataFrame], fed: bool) -> dict[str, float]:
    """What is said of the fastest launches of each group."""
    tied, groups, widths = 0, 0, []
    for mine, other in (best, best[::-1]):
        first = mine[mine["is_fastest"] & (mine["kernel"].isin(OF_HOST) == fed)]
        # The table has the tied cells of each group.
        tied += int(first["cell_key"].isin(other["cell_key"]).sum())
        groups += len(first)
        widths.append((first["median_high_s"] - first["median_low_s"]) / 2 / first["median_s"])
    half = pd.concat(widths)
    return {
        "groups": groups,
        "fastest_tied": tied / groups,
        "half_width_median": float(half.median()),
        "half_width_p90": float(half.quantile(0.9)),
        "within_1_percent": float((half <= 0.01).mean()),
    }


if __name__ == "__main__":
    main()
