"""Cells of micro-benchmarks without what starting a launch takes, for `machine`."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from ..core.schema import DERIVED
from .fastest import BYTES_TOUCHED, bytes_touched, cache_bytes

# As in the kernel `chase`: bytes of its array's elements, and of a place of its chain.
WORD, PLACE = 4, 128
MEDIANS = ("median_s", "median_low_s", "median_high_s")
# What `MachineCells` makes: seconds of a launch beyond its start, with their interval; bytes that a
# chain spans, and that a launch goes through of them; seconds of a hop.
TIMES = tuple(f"{DERIVED}{name}" for name in ("net_s", "net_low_s", "net_high_s"))
SPAN, SEEN, HOP_S = (f"{DERIVED}{name}" for name in ("span", "seen", "hop_s"))

# Value, low, high, unit, and how they were found.
Found = tuple[float, float, float, str, str]


class UndeterminedError(Exception):
    """Why the cells do not tell a figure, as a sentence."""


class MachineCells:
    """The verified cells, by kernel, with what a launch takes beyond its start."""

    def __init__(self, cells: pd.DataFrame) -> None:
        self._cells = cells.assign(**{BYTES_TOUCHED: bytes_touched(cells)})

    def of(self, kernel: str) -> pd.DataFrame:
        """The kernel's cells. Raises UndeterminedError where there are none."""
        rows = self._cells[self._cells["kernel"] == kernel]
        if rows.empty:
            raise UndeterminedError(f"There is no verified cell of the kernel '{kernel}'.")
        return rows

    @cached_property
    def cache(self) -> int:
        """Bytes of the last cache level. Raises UndeterminedError where it is not told."""
        cache = cache_bytes(self._cells)
        if cache is None:
            raise UndeterminedError("The device does not tell the size of its cache.")
        return cache

    @cached_property
    def sample(self) -> Found:
        """What a sample takes besides its launches, by the same launches in shorter samples."""
        rows = self.of("dispatch")
        names = ["grid", "block_x"]
        x = 1.0 / rows["launches_per_sample"]
        # A long launch tells less of a short time.
        weight = rows["median_s"] ** -2.0
        table = rows[names].assign(x=x, w=weight, wx=weight * x)
        sums = table.groupby(names)[["w", "wx"]].transform("sum")
        part = weight * (x - sums["wx"] / sums["w"])
        spread = float((part * x).sum())
        if spread <= 1e-12 * float((weight * x * x).sum()):
            raise UndeterminedError(
                "No launch of the kernel 'dispatch' was sampled with two numbers of launches."
            )
        found = sorted(float((part * rows[name]).sum()) / spread for name in MEDIANS)
        low, value, high = (max(0.0, s) for s in found)
        how = "Equal launches of empty blocks, alone and with others in a sample."
        return value, low, high, "s", how

    @cached_property
    def launch(self) -> Found:
        """What a launch takes that does next to nothing."""
        rows = self.of("dispatch").sort_values(
            ["grid", "block_x", "launches_per_sample"], ascending=[True, True, False]
        )
        cell = rows.iloc[0]
        once = self._per_sample / cell["launches_per_sample"]
        value, low, high = (float(cell[name]) - once for name in MEDIANS)
        if low <= 0:
            raise UndeterminedError("The shortest launch takes no longer than a sample costs.")
        how = (
            f"A launch of {int(cell['blocks'])} x {int(cell['threads_per_block'])} threads among "
            f"{int(cell['launches_per_sample'])}, without its part of what the sample costs."
        )
        return value, low, high, "s", how

    @cached_property
    def _per_sample(self) -> float:
        try:
            return self.sample[0]
        except UndeterminedError:
            return 0.0

    @cached_property
    def _per_launch(self) -> float:
        try:
            return self.launch[0]
        except UndeterminedError:
            return 0.0

    def net(self, kernel: str) -> pd.DataFrame:
        """The kernel's cells with what a launch takes beyond its start, in columns TIMES.

        Where the cache is flushed every launch is timed by itself. Where the cells do not tell
        what a start takes, it counts for nothing.
        """
        return self._without(kernel, self._per_launch)

    def net_of_known_start(self, kernel: str) -> pd.DataFrame:
        """As `net`, for launches so short that their start would be part of a rate.

        Raises UndeterminedError where the cells do not tell what a start takes.
        """
        return self._without(kernel, self.launch[0])

    def _without(self, kernel: str, launch_s: float) -> pd.DataFrame:
        rows = self.of(kernel)
        together = rows["launches_per_sample"].where(rows["cache_state"] == "warm", 1)
        start = launch_s + self._per_sample / together
        named = zip(TIMES, MEDIANS, strict=True)
        return rows.assign(**{net: rows[whole] - start for net, whole in named})

    def chains(self) -> pd.DataFrame:
        """The cells of `chase`, with the bytes that its places span and seconds of a hop."""
        rows = self.net("chase")
        whole = rows["height"] * rows["width"] * WORD
        seen = (rows["chains"] * rows["hops"] * PLACE).clip(upper=whole)
        hop = rows[TIMES[0]] / rows["hops"]
        return rows.assign(**{SPAN: whole, SEEN: seen, HOP_S: hop})
