"""What the table of energy says: which launches are cheap, and which can be told apart by it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ..core.median import MeanInterval, mean_interval
from ..core.schema import ENERGY_SCHEMA
from ..storage.store import read_metadata, read_table

# Launches that are at most so much slower than the fastest count as fast as it.
TIED_SPEED = 0.01
Row = Mapping[str, Any]


@dataclass(frozen=True)
class EnergyTable:
    """Rows of ENERGY_SCHEMA that have figures, and what the study says of itself.

    `why` nothing was measured, None where something was; `idle_w` before and after.
    """

    rows: Sequence[Row]
    why: str | None
    device: str
    idle_w: Sequence[float]


@dataclass(frozen=True)
class EnergyGroup:
    """Launches of one kernel, type, variant and size; the fastest first."""

    rows: Sequence[Row]

    @property
    def fastest(self) -> Row:
        """The one that moved most bytes a second in its windows."""
        return self.rows[0]

    @property
    def cheapest(self) -> Row:
        """The one that takes the fewest joules a gigabyte."""
        return min(self.rows, key=lambda row: row["joules_per_gb"])

    @property
    def tied(self) -> list[Row]:
        """Those as fast as the fastest, by TIED_SPEED, itself among them."""
        return [row for row in self.rows if row["gbs"] >= (1 - TIED_SPEED) * self.fastest["gbs"]]

    @property
    def front(self) -> list[Row]:
        """Those of which none is both faster and cheaper, the fastest first."""
        found: list[Row] = []
        for row in self.rows:
            if not found or row["joules_per_gb"] < found[-1]["joules_per_gb"]:
                found.append(row)
        return found


def read_energy(path: Path) -> EnergyTable:
    """The table that `studies.energy` wrote. Raises BadParquetError."""
    rows = read_table(path, ENERGY_SCHEMA).to_pylist()
    metadata = read_metadata(path)
    good = [row for row in rows if row["message"] is None]
    idle = [window["joules"] / window["seconds"] for window in metadata["idle"]]
    failed = next((row["message"] for row in rows), "it was asked of no cell.")
    why = None if good else metadata["why"] or f"Energy was not measured: {failed}"
    return EnergyTable(good, why, metadata["device"].get("name", ""), idle)


def energy_groups(rows: Sequence[Row]) -> list[EnergyGroup]:
    """The groups of launches that compete, those of a kernel after each other."""

    def key(row: Row) -> tuple[Any, ...]:
        names = ("device_name", "kernel", "dtype", "height", "width", "variant")
        return tuple(row[name] for name in names)

    in_order = sorted(rows, key=lambda row: (key(row), -row["gbs"], row["cell_key"]))
    return [EnergyGroup(list(members)) for _, members in groupby(in_order, key)]


def joules_ratio(a: Row, b: Row) -> MeanInterval:
    """How many times the energy of `b` launch `a` takes for a byte, with its 95 % interval.

    Of the rounds that both have, round by round, so that what drifts over rounds counts for none.
    """
    pairs = zip(_per_round(a), _per_round(b), strict=False)
    found = mean_interval([math.log(x / y) for x, y in pairs])
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return MeanInterval(math.exp(found.mean), low, high)


def is_told_apart(ratio: MeanInterval) -> bool:
    """Whether the interval of a ratio does not hold 1."""
    return ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high


def launch_text(row: Row) -> str:
    """The launch in short: ``64 × 4`` of a block alone, else its parameters by name."""
    values = dict(part.split("=") for part in row["params"].split())
    if set(values) == {"block_x", "block_y"}:
        return f"{values['block_x']} × {values['block_y']}"
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "—"


def _per_round(row: Row) -> list[float]:
    windows = zip(row["window_j"], row["window_s"], row["window_gbs"], strict=True)
    return [joules / seconds / gbs for joules, seconds, gbs in windows]
