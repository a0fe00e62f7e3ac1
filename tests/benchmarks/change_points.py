"""What Apache Otava finds in recorded runs of which the later ones have work planted.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python tests/benchmarks/change_points.py RUNS OTAVA OUT.json

RUNS is a folder as `tests/gpu/record_pairs.py` measures it, such as
reports/reference/nvidia-h200-repeated, which reports/reference/comparing/history.json is made of;
OTAVA is the program in an environment of its own (python3 -m venv otava-env; otava-env/bin/pip
install apache-otava==0.8.0). Needs no device. The runs of the same thing come first, those with 3 %
planted after them, although they were measured in turns: so nothing but the work changes there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gpushmoo.comparing.history import DELTA, history_of
from gpushmoo.comparing.otava import series_changes
from gpushmoo.comparing.runs import read_run
from gpushmoo.core.history_schema import BEST
from gpushmoo.core.schema import GROUP

LATER = "planted-03-*"
ORDERS = 100


def found(folder: Path, program: str, delta: float) -> list[dict[str, Any]]:
    """Each group with its change points."""
    names = [*sorted(folder.glob("r[0-9]*")), *sorted(folder.glob(LATER))]
    history = history_of([read_run(path) for path in names], program, delta)
    groups = []
    for key, rows in history.rows.groupby(list(GROUP), observed=True):
        of_group = history.changes[(history.changes[list(GROUP)] == list(key)).all(axis=1)]
        changes = of_group[["quantity", "run", "before", "after", "change", "cause"]]
        row = rows.iloc[0][list(GROUP)].to_dict()
        records = changes.astype(object).where(changes.notna(), None).to_dict("records")
        groups.append({**row, "runs": len(rows), "changes": records})
    return groups


def in_other_orders(folder: Path, program: str, delta: float) -> dict[str, int]:
    """How often a best of runs of the same thing has a change point in an order drawn at random."""
    runs = [read_run(path) for path in sorted(folder.glob("r[0-9]*"))]
    rows = history_of(runs, program, delta).rows
    draws = np.random.default_rng(0)
    series = [
        {BEST: draws.permutation(group[BEST].to_numpy())}
        for _, group in rows.groupby(list(GROUP), observed=True)
        for _ in range(ORDERS)
    ]
    changed = [bool(changes[BEST]) for changes in series_changes(series, delta, program)]
    return {"series": len(changed), "changed": sum(changed)}


def main(folder: Path, program: str, out: Path) -> None:
    """Write what is found of changes of any size, and of those that are told."""
    told = {
        "otava": "0.8.0",
        "runs": folder.name,
        "delta": DELTA,
        "groups": found(folder, program, DELTA),
        "groups_at_any_size": found(folder, program, 0.0),
        "same_in_other_orders": in_other_orders(folder, program, DELTA),
        "same_in_other_orders_at_any_size": in_other_orders(folder, program, 0.0),
    }
    out.write_text(json.dumps(told, indent=1, default=int) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
