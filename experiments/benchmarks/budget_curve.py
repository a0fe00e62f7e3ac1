"""What does a budget buy? Sweeps the same cells with several budgets and with a long one.

PYTHONPATH=workflow/scripts python experiments/benchmarks/budget_curve.py OUT.json
"""

import argparse
import time
from pathlib import Path
from typing import Any

import gpushmoo
import numpy as np
from gpushmoo.core.paths import ROOT
from gpushmoo.storage.wholefile import write_json

SIDES = list(range(4, 65, 4))
SWEPT: dict[str, Any] = {
    "axes": {"block_x": SIDES, "block_y": SIDES},
    "dtypes": "float",
    "sizes": 1024,
    "variants": ["element"],
    "progress": False,
}


def answer(budget: float) -> tuple[float, int, set[str], float, int]:
    """Seconds, repeats, keys of the tied cells, half width of the fastest, cells measured."""
    begin = time.perf_counter()
    result = gpushmoo.sweep(ROOT / "kernels/copy2d_coalesced", budget=budget, **SWEPT)
    seconds = time.perf_counter() - begin
    cells = result.cells[result.cells["status"] == "ok"]
    best = result.best
    keys = {f"{x}x{y}" for x, y in zip(best["block_x"], best["block_y"], strict=True)}
    fastest = cells.loc[cells["median_s"].idxmin()]
    half = (fastest["median_high_s"] - fastest["median_low_s"]) / (2 * fastest["median_s"])
    return seconds, max(map(len, cells["repeat_samples"])), keys, float(half), len(cells)


def main() -> None:
    """Sweep and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--budgets", type=float, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--whole", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=SWEPT["sizes"])
    given = parser.parse_args()
    SWEPT["sizes"] = given.size
    answer(1.0)
    *_, final, _, cells = answer(given.whole)
    rows = []
    for budget in given.budgets:
        found = [answer(budget) for _ in range(given.rounds)]
        shares = [(len(k & final) / len(final), len(k & final) / len(k)) for _, _, k, _, _ in found]
        seconds, repeats, half = (float(np.median([f[i] for f in found])) for i in (0, 1, 3))
        share, precise = np.median(shares, axis=0).tolist()
        row = {"budget": budget, "seconds": seconds, "repeats": int(repeats), "half": half}
        rows.append(row | {"found": share, "precise": precise})
    facts = {"cells": cells, "rounds": given.rounds, "whole_s": given.whole, "tied": len(final)}
    write_json(given.out, {**facts, "size": given.size, "rows": rows})


if __name__ == "__main__":
    main()
