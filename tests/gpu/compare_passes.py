"""Compares two passes of one sweep: do the same cells get the same times, and the same best sets?

    PYTHONPATH=workflow/scripts python tests/gpu/compare_passes.py FIRST SECOND OUT.json

FIRST and SECOND are folders of shards (results/<run>/cells). Needs no device. Exit status 1 when
the median difference exceeds 0.1 % or fewer than 95 % of the cells agree within 0.5 %.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from gpushmoo.analysis.best import tied_best
from gpushmoo.schema import GROUP, Status
from gpushmoo.store import read_shard

MEDIAN_LIMIT = 0.001
CELL_LIMIT = 0.005
SHARE = 0.95


def cells(folder: Path) -> pd.DataFrame:
    """All cells of the shards under `folder`."""
    shards = [read_shard(p)[0].to_pandas() for p in sorted(folder.rglob("*.parquet"))]
    return pd.concat(shards, ignore_index=True)


def differences(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """The cells that are ok in both, with the relative difference of their medians."""
    ok = [d[d["status"] == Status.OK].set_index("cell_key") for d in (first, second)]
    again = ok[1]["median_s"].rename("median_s_again")
    both = ok[0].join(again, how="inner")
    mean = (both["median_s"] + both["median_s_again"]) / 2
    return both.assign(difference=(both["median_s_again"] - both["median_s"]).abs() / mean)


def summary(both: pd.DataFrame) -> dict[str, Any]:
    """Median, 95th percentile and largest difference, and the share within the limit."""
    d = both["difference"]
    return {
        "cells": len(d),
        "median": float(d.median()),
        "p95": float(d.quantile(0.95)),
        "largest": float(d.max()),
        "within_half_per_cent": float((d <= CELL_LIMIT).mean()),
    }


def best_sets(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, int]:
    """Groups whose tied best sets are the same, overlap, or have nothing in common."""
    found = {"groups": 0, "same": 0, "overlapping": 0, "disjoint": 0}
    sets = [
        {k: set(tied_best(g)["cell_key"]) for k, g in d.groupby(list(GROUP))}
        for d in (first, second)
    ]
    for key in sets[0].keys() & sets[1].keys():
        a, b = sets[0][key], sets[1][key]
        found["groups"] += 1
        found["same" if a == b else "overlapping" if a & b else "disjoint"] += 1
    return found


def compare(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, Any]:
    """Everything that is said about the two passes."""
    both = differences(first, second)
    by: Mapping[str, pd.DataFrame] = {
        "launches of 50 µs and more": both[both["launches_per_sample"] == 1],
        "shorter, warm": both[(both["launches_per_sample"] > 1) & (both["cache_state"] == "warm")],
        "shorter, flushed": both[
            (both["launches_per_sample"] > 1) & (both["cache_state"] == "flushed")
        ],
    }
    return {
        "all": summary(both),
        "classes": {name: summary(part) for name, part in by.items() if len(part)},
        "best_sets": best_sets(first, second),
    }


def main(first: Path, second: Path, out: Path) -> int:
    """Write the comparison to `out`, print it, and say by the exit status whether it holds."""
    result = compare(cells(first), cells(second))
    out.write_text(json.dumps(result, indent=1) + "\n")
    for name, s in {"all": result["all"], **result["classes"]}.items():
        print(
            f"{name}: {s['cells']} cells, median {s['median']:.3%}, 95 % under {s['p95']:.3%}, "
            f"largest {s['largest']:.2%}, {s['within_half_per_cent']:.1%} within {CELL_LIMIT:.1%}"
        )
    print("best sets:", ", ".join(f"{n} {k}" for k, n in result["best_sets"].items()))
    s = result["all"]
    return int(s["median"] > MEDIAN_LIMIT or s["within_half_per_cent"] < SHARE)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:4])))
