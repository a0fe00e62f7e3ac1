"""Measure the peak load and store bandwidth of a device, and the share that a cell reaches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ..core.display import percent
from ..core.metric import Metric
from ..core.schema import DERIVED
from ..core.space import Condition
from ..storage.dataset import read_cells
from ..storage.wholefile import read_json, write_json
from .fastest import BYTES_TOUCHED, axes_of, bytes_touched, fastest, params_text

# Columns of a data set that this module reads, besides the axes.
COLUMNS = frozenset(
    {
        "kernel",
        "dtype",
        "variant",
        "cell_key",
        "cache_state",
        "timing_mode",
        "device_name",
        "status",
        "median_s",
        "median_low_s",
        "median_high_s",
        "work",
        "work_unit",
        "bytes_read",
        "bytes_written",
        "working_set_over_cache",
        "bandwidth_gbs",
        "bandwidth_low_gbs",
        "bandwidth_high_gbs",
    }
)
_KIND = f"{DERIVED}kind"


@dataclass(frozen=True)
class PeakRow:
    """Fastest verified cell that only loads, or only stores, a given number of bytes.

    `kind` is ``load`` or ``store``. Bandwidths are in GB/s. `working_set_over_cache` is a multiple
    of the last cache level, or None if the size of the cache is unknown.
    """

    device_name: str
    cache_state: str
    timing_mode: str
    kind: str
    bytes_touched: int
    working_set_over_cache: float | None
    bandwidth_gbs: float
    bandwidth_low_gbs: float
    bandwidth_high_gbs: float
    kernel: str
    dtype: str
    variant: str
    params: str


@dataclass(frozen=True)
class WorkPeak:
    """Highest rate of work in 10⁹ `work_unit` per second, with its 95 % interval."""

    device_name: str
    dtype: str
    work_unit: str
    rate: float
    rate_low: float
    rate_high: float
    kernel: str
    params: str


@dataclass(frozen=True)
class PeakShare:
    """Share of the measured peak that a cell reaches, as the report shows it.

    `share` is at most 1. It is 1 if the cell is statistically tied with its measured peak. It is
    None if the cell is significantly faster: loads and stores that overlap can exceed the peak,
    which adds their times.
    """

    share: float | None

    @property
    def text(self) -> str:
        """``97 %``, or a dash if the cell exceeds the measured peak."""
        return "—" if self.share is None else percent(self.share)

    @property
    def words(self) -> str:
        """``97 % of the measured peak``, to follow a bandwidth in a sentence."""
        if self.share is None:
            return "above the measured peak, which does not limit overlapping loads and stores"
        return f"{self.text} of the measured peak"


def peak_rows(cells: pd.DataFrame, kinds: Mapping[str, str]) -> list[PeakRow]:
    """Return the measured peaks in `cells`; `kinds` maps a kernel to ``load`` or ``store``.

    There is one row for each device, cache state, timing mode, kind and number of bytes touched,
    sorted by these. Each is the best over type, variant and all launch parameters.
    """
    axes = {kernel: axes_of(cells[cells["kernel"] == kernel]) for kernel in kinds}
    of_kinds = cells[cells["kernel"].isin(list(kinds)) & (bytes_touched(cells) > 0)]
    of_kinds = of_kinds.assign(**{_KIND: of_kinds["kernel"].map(dict(kinds))})
    best = fastest(of_kinds, ["device_name", "cache_state", "timing_mode", _KIND, BYTES_TOUCHED])
    return [_row(cell, axes[cell["kernel"]]) for cell in best.to_dict("records")]


def _row(cell: Mapping[str, Any], axes: Sequence[str]) -> PeakRow:
    share = cell["working_set_over_cache"]
    own = {
        "kind": cell[_KIND],
        "bytes_touched": int(cell[BYTES_TOUCHED]),
        "working_set_over_cache": None if pd.isna(share) else float(share),
        "params": params_text(cell, axes),
    }
    return PeakRow(**own, **{f.name: cell[f.name] for f in fields(PeakRow) if f.name not in own})


def peak_gbs(
    rows: Sequence[PeakRow], device_name: str, met: Condition, bytes_read: int, bytes_written: int
) -> float | None:
    """Return the GB/s at which the device could move these bytes; None if a needed kind is missing.

    Reads and writes share the bus to the DRAM, so their times add up. Each rate is that of the row
    whose working set is nearest (in logarithm) to all bytes touched, because all bytes together
    decide which part of them a cache contains.

    Parameters
    ----------
    rows
        Measured peaks, see `peak_rows`.
    device_name, met
        Device, cache state and timing mode; only rows of these count.
    bytes_read, bytes_written
        Bytes that one launch moves.
    """
    total = bytes_read + bytes_written
    inverse_gbs = 0.0
    for kind, share in (("load", bytes_read), ("store", bytes_written)):
        if share == 0:
            continue
        place = (device_name, *met, kind)
        usable = [r for r in rows if place == (r.device_name, r.cache_state, r.timing_mode, r.kind)]
        if not usable:
            return None
        nearest = min(usable, key=lambda r: abs(math.log(r.bytes_touched / total)))
        inverse_gbs += share / nearest.bandwidth_gbs
    return total / inverse_gbs if inverse_gbs else None


def cell_peak_gbs(rows: Sequence[PeakRow], cell: Mapping[str, Any]) -> float | None:
    """Return the measured peak of a row of the data set in GB/s, or None if it is not known."""
    return peak_gbs(
        rows,
        cell["device_name"],
        Condition(cell["cache_state"], cell["timing_mode"]),
        int(cell["bytes_read"]),
        int(cell["bytes_written"]),
    )


def share_of_peak(rows: Sequence[PeakRow], cell: Mapping[str, Any]) -> float | None:
    """Return bandwidth divided by measured peak; reports show `displayed_share` instead."""
    peak = cell_peak_gbs(rows, cell)
    return None if peak is None else float(cell["bandwidth_gbs"]) / peak


def displayed_share(rows: Sequence[PeakRow], cell: Mapping[str, Any]) -> PeakShare | None:
    """Return the share of the measured peak that a report shows for a cell; None without a peak.

    Up to 1, this is the bandwidth of the cell divided by its peak (`share_of_peak`). Above 1, the
    result depends on the confidence intervals. The peak is computed again from the upper ends of
    the intervals of the load and store bandwidths. If the lower end of the cell's interval exceeds
    this upper bound, the cell is significantly faster than its peak, and the result is
    ``PeakShare(None)``. Otherwise it is ``PeakShare(1.0)``.

    Parameters
    ----------
    rows
        Measured peaks, see `peak_rows`.
    cell
        Row of the data set of a verified cell. Bandwidths are in GB/s.
    """
    share = share_of_peak(rows, cell)
    if share is None or share <= 1:
        return None if share is None else PeakShare(share)
    at_most = [replace(row, bandwidth_gbs=row.bandwidth_high_gbs) for row in rows]
    highest = cell_peak_gbs(at_most, cell)
    surely = highest is not None and cell["bandwidth_low_gbs"] > highest
    return PeakShare(None if surely else 1.0)


def work_peaks(cells: pd.DataFrame) -> list[WorkPeak]:
    """Return the highest rate of each device, element type and unit of work, sorted by these."""
    found: dict[tuple[str, str, str], WorkPeak] = {}
    told = cells[cells["work"].notna()]
    for row in told.to_dict("records"):
        device_name, dtype, unit = (str(row[n]) for n in ("device_name", "dtype", "work_unit"))
        key = (device_name, dtype, unit)
        rates = Metric("rate", unit).of(row)
        if key not in found or rates.value > found[key].rate:
            params = params_text(row, axes_of(told[told["kernel"] == row["kernel"]]))
            found[key] = WorkPeak(
                device_name=device_name,
                dtype=dtype,
                work_unit=unit,
                rate=rates.value,
                rate_low=rates.low,
                rate_high=rates.high,
                kernel=row["kernel"],
                params=params,
            )
    return [found[key] for key in sorted(found)]


def measure_peak(dataset: Path, kinds: Mapping[str, str], out: Path) -> None:
    """Write the measured peaks of a data set to a JSON file.

    Parameters
    ----------
    dataset
        Folder of the data set.
    kinds
        For each kernel that measures a peak, ``load`` or ``store`` for bandwidth, or ``work`` for
        arithmetic.
    out
        Path of the file.
    """
    cells = read_cells(dataset, {"kernel": list(kinds), "status": "ok"}, COLUMNS)
    of_work = [name for name, kind in kinds.items() if kind == "work"]
    moving = {name: kind for name, kind in kinds.items() if kind != "work"}
    working = work_peaks(cells[cells["kernel"].isin(of_work)])
    write_peak(peak_rows(cells, moving), out, working)


def write_peak(rows: Sequence[PeakRow], path: Path, work: Sequence[WorkPeak] = ()) -> None:
    """Write the measured peaks to `path`; the file has empty lists if no kernel measures them."""
    peaks = {"peak": [asdict(row) for row in rows], "work": [asdict(row) for row in work]}
    write_json(path, peaks)


def read_work_peaks(path: Path) -> list[WorkPeak]:
    """Read the peaks of work that `write_peak` wrote; raise DamagedFileError naming the file."""
    return [WorkPeak(**row) for row in read_json(path)["work"]]


def read_peak(path: Path) -> list[PeakRow]:
    """Read the peaks that `write_peak` wrote; raise DamagedFileError naming the file."""
    return [PeakRow(**row) for row in read_json(path)["peak"]]
