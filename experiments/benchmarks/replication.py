"""Does what one run says hold in another? Compares two independent runs of the same sweep.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/benchmarks/replication.py FIRST SECOND [OUT.json]

FIRST and SECOND are folders of shards (results/<run>/cells). Needs no device. Of two runs with
honest 95 % intervals of equal width 0.6 % are disjoint and 83 % hold the other's median.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import tied_best
from gpushmoo.core.schema import GROUP, Status
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.packed import unpacked

_NAMES = ["median_s", "median_low_s", "median_high_s"]


def cells_of(folder: Path) -> pd.DataFrame:
    """The aggregated ``ok`` cells of the shards under `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "dataset"
        aggregate(sorted(unpacked(folder).rglob("*.parquet")), out)
        cells = read_cells(out)
    return cells[cells["status"] == Status.OK]


def agreement(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, Any]:
    """How often intervals and winners of one run agree with the other's.

    ``disjoint``: share of the cells whose intervals do not meet; ``holding``: share of the medians
    that lie in the other run's interval, both ways; ``winner_tied``: share of the groups in which
    one run's fastest cell is in the other's tied set, both ways.
    """
    named = [
        c.set_index("cell_key")[_NAMES].add_suffix(s) for c, s in ((first, "_a"), (second, "_b"))
    ]
    both = named[0].join(named[1], how="inner")
    disjoint = (both["median_low_s_a"] > both["median_high_s_b"]) | (
        both["median_low_s_b"] > both["median_high_s_a"]
    )
    holding = [
        both[f"median_s_{x}"].between(both[f"median_low_s_{y}"], both[f"median_high_s_{y}"])
        for x, y in ("ab", "ba")
    ]
    return {
        "cells": len(both),
        "disjoint": float(disjoint.mean()),
        "holding": float(np.mean(holding)),
        **_winners(first, second),
    }


def _winners(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, Any]:
    tied = [
        {key: tied_best(group) for key, group in cells.groupby(list(GROUP), observed=True)}
        for cells in (first, second)
    ]
    sizes = [cells.groupby(list(GROUP), observed=True).size() for cells in (first, second)]
    common = [key for key in tied[0] if key in tied[1] and sizes[0][key] > 1]
    held = [
        tied[a][key]["cell_key"].iloc[0] in set(tied[b][key]["cell_key"])
        for key in common
        for a, b in ((0, 1), (1, 0))
    ]
    return {"groups": len(common), "winner_tied": float(np.mean(held))}


def main(first: Path, second: Path, out: Path | None) -> None:
    """Print the agreement, and write it to `out`."""
    found = agreement(cells_of(first), cells_of(second))
    text = json.dumps(found, indent=1)
    print(text)
    if out is not None:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
