"""The simulated H200 beside the recorded cells of persistent blocks."""

from __future__ import annotations

import hashlib
from typing import Any

import pandas as pd
from gpushmoo.simulation.compare_measured import Point, points, predicted_gbs
from gpushmoo.simulation.machine import Level, load_machine

from .record import ROOT, Record
from .slow import Slow, key_of
from .words import Claims, percent, whole_percent

DEVICE = ROOT / "config" / "devices" / "nvidia-h200.yaml"
MODULES = (
    "gpushmoo.simulation.machine",
    "gpushmoo.simulation.tiling",
    "gpushmoo.simulation.agenda",
    "gpushmoo.simulation.event_loop",
    "gpushmoo.simulation.dram_controller",
    "gpushmoo.simulation.run",
    "gpushmoo.simulation.compare_measured",
)
KERNEL = "block_eq_partition"
LEVELS = tuple(level.value for level in Level)


def values(record: Record, slow: Slow, claims: Claims) -> dict[str, Any]:
    """Errors by number of blocks, of each level of detail; nothing was fitted to what they show."""
    machine = load_machine(DEVICE)
    wanted = points(machine, record.of(KERNEL))
    kept = kept_of(record, slow)
    names = [name_of(p) for p in wanted]
    table = pd.DataFrame(
        {
            "dtype": [p.dtype for p in wanted],
            "blocks": [p.blocks for p in wanted],
            "measured": [p.measured_gbs for p in wanted],
            **{level: [kept[level][n] for n in names] for level in LEVELS},
        }
    )
    for level in LEVELS:
        table[level] = table[level] / table["measured"] - 1
    units, capacity = machine.n_sm, int(table["blocks"].max()) // 2
    few, many = table[table["blocks"] < units], table[table["blocks"] >= units]
    claims.hold(
        "From one block a multiprocessor on every error of 'banks' is positive.",
        bool((many["banks"] > 0).all()),
        many["banks"].round(3).to_list(),
    )
    at = {(r.dtype, r.blocks): r for r in table.itertuples()}
    measured = {(r.dtype, r.blocks): r.measured for r in table.itertuples()}
    simulated = {k: measured[k] * (1 + r.banks) for k, r in at.items()}

    def fallen(of: dict[tuple[str, int], float], dtype: str) -> float:
        return of[dtype, capacity + 1] / of[dtype, capacity]

    def fall(of: dict[tuple[str, int], float], dtype: str) -> str:
        return whole_percent(fallen(of, dtype))

    claims.hold(
        "The fall past the last resident block comes out.",
        all(abs(fallen(simulated, d) - fallen(measured, d)) < 0.08 for d in ("float", "double")),
    )

    return {
        "few_points": str(len(few)),
        "many_points": str(len(many)),
        "rows": [
            [_blocks_words(low, high, capacity), *(_signed(part, level) for level in LEVELS)]
            for low, high, part in _ranges(table, units, capacity)
        ],
        "median_few": {lv: percent(float(few[lv].abs().median())) for lv in LEVELS},
        "median_many": {lv: percent(float(many[lv].abs().median())) for lv in LEVELS},
        "fall_measured": {d: fall(measured, d) for d in ("float", "double")},
        "fall_simulated": {d: fall(simulated, d) for d in ("float", "double")},
    }


def name_of(point: Point) -> str:
    """What tells a simulated point from the others."""
    return f"{point.dtype} {point.blocks} {point.tiling}"


def kept_of(record: Record, slow: Slow) -> dict[str, dict[str, float]]:
    """Simulated GB/s by level and `name_of` the point; of the record only which there are."""
    machine = load_machine(DEVICE)
    wanted = points(machine, record.of(KERNEL))
    which = hashlib.sha256(" ".join(map(name_of, wanted)).encode()).hexdigest()
    found: dict[str, dict[str, float]] = slow.get(
        "simulated H200",
        key_of([DEVICE], MODULES) + which,
        lambda: {
            level.value: {name_of(p): predicted_gbs(machine, p, level) for p in wanted}
            for level in Level
        },
    )
    return found


def _ranges(table: pd.DataFrame, units: int, capacity: int) -> list[tuple[int, int, pd.DataFrame]]:
    ends = [
        (1, units - 1),
        (units, capacity - 1),
        (capacity, capacity),
        (capacity + 1, capacity + 1),
        (2 * capacity, 2 * capacity),
    ]
    found = []
    for low, high in ends:
        part = table[(table["blocks"] >= low) & (table["blocks"] <= high)]
        if len(part):
            found.append((int(part["blocks"].min()), int(part["blocks"].max()), part))
    return found


def _blocks_words(low: int, high: int, capacity: int) -> str:
    if low != high:
        return f"{low} to {high} blocks"
    return f"{low} blocks (all that the device holds)" if low == capacity else f"{low} blocks"


def _signed(part: pd.DataFrame, level: str) -> str:
    low, high = (_whole(100 * end) for end in (part[level].min(), part[level].max()))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _whole(percent: float) -> str:
    """``+5``, ``−5`` or ``0``."""
    return f"{round(percent):+d}".replace("-", "−") if round(percent) else "0"
