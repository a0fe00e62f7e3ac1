"""What was recorded, when, on how many devices, and how steady they were."""

from __future__ import annotations

from typing import Any

import pandas as pd
from gpushmoo.analysis.steadiness import steadiness
from gpushmoo.core.schema import SAMPLE_COUNT
from gpushmoo.core.space import TYPICAL, asks_the_device, expand_axis

from .record import Record
from .words import joined, percent, whole, whole_percent

DOT = "dot_"
# A launch that lasts so long is sampled alone (gpushmoo.measuring.rounds).
LONG_S = 50e-6
COPIES = ("copy2d_", "block_eq_partition", "global_")


def values(record: Record) -> dict[str, Any]:
    """Counts, dates and versions of the record, from its rows and its shards' metadata."""
    cells, ok = record.cells, record.ok
    dots = cells["kernel"].str.startswith(DOT)
    first = record.provenance[0]["device"]
    stamps = pd.to_datetime([p["written_at"] for p in record.provenance])
    return {
        "cells": whole(len(cells)),
        "sweep_cells": whole(int((~dots).sum())),
        "dot_cells": whole(int(dots.sum())),
        "counted_cells": whole(_counted_without_device(record, cells[~dots])),
        "ok": whole(len(ok)),
        "too_large": whole(int((cells["status"] == "too_many_threads").sum())),
        "others": whole(int((~cells["status"].isin(["ok", "too_many_threads"])).sum())),
        "samples": whole(int(ok[SAMPLE_COUNT].sum())),
        "shards": whole(len(record.provenance)),
        **_thousand(record, int((~dots).sum())),
        "megabytes": f"{record.n_bytes / 1e6:.0f}",
        "runtime": first["runtime"],
        "units": first["units"],
        "l2_mib": f"{first['cache'] / 2**20:.0f}",
        "ecc": "on" if first["extra"]["ecc"] == "True" else "off",
        "dates": " and ".join(sorted({f"{s:%Y-%m-%d}" for s in stamps})),
        "recordings": _recordings(record),
        "state": _state(record),
        "widths": _widths(ok),
        **_repeats(record),
        **_unmet(record),
    }


def _repeats(record: Record) -> dict[str, str]:
    """What the intervals cover, and how far the repeats of the run lie apart."""
    counts = {int(p["params"]["measure"].get("repeats", 1)) for p in record.provenance}
    spread = record.ok["between_spread"].dropna() if max(counts) > 1 else pd.Series(dtype=float)
    if spread.empty:
        return {
            "covered": "of the median of this one run, which says nothing about another run",
            "between": "",
        }
    once = steadiness(record.provenance).once
    but = f" but {joined(f'`{k}`' for k in once)}" if once else ""
    alone = "; theirs is of the median of one run and says nothing about another" if once else ""
    return {
        "covered": f"of what another run on the same host may find, since everything{but} was "
        f"measured {max(counts)} times, each time in new processes{alone}",
        "between": "The repeats' medians of a cell spread by "
        f"{percent(float(spread.median()))} (relative standard deviation, median of the cells; "
        f"95th percentile {percent(float(spread.quantile(0.95)))}).",
    }


def _counted_without_device(record: Record, cells: pd.DataFrame) -> int:
    """How many `cells` planning counts, which supposes a typical device for axes that ask one."""
    total = float(len(cells))
    for (kernel, dtype), part in cells.groupby(["kernel", "dtype"], observed=True):
        shards = (
            p["params"]
            for p in record.provenance
            if p["params"]["folder"].endswith(f"/{kernel}") and p["params"]["dtype"] == dtype
        )
        for axis, spec in next(shards, {"axes": {}})["axes"].items():
            if asks_the_device(spec):
                total += len(part) * (len(expand_axis(spec, TYPICAL)) / part[axis].nunique() - 1)
    return round(total)


def _thousand(record: Record, cells: int) -> dict[str, str]:
    """The full sweep's shards, and what it comes to on a thousand devices."""
    names = [p["params"]["folder"].split("/")[-1] for p in record.provenance]
    shards = sum(not name.startswith(DOT) for name in names)
    return {
        "sweep_shards": whole(shards),
        "thousand_files": whole(1000 * shards),
        "thousand_rows": f"{cells / 1000:.0f} million",
    }


def _recordings(record: Record) -> list[list[str]]:
    """A line for each recording: kernels, devices, the host's cores, repeats, shards, when.

    Kernels whose shards went to the same devices are of one recording.
    """
    shards = pd.DataFrame(
        {
            "device": p["device"]["uuid"],
            "kernel": p["params"]["folder"].split("/")[-1],
            "cores": p["host"]["cores"],
            "repeats": int(p["params"]["measure"].get("repeats", 1)),
            "at": pd.Timestamp(p["written_at"]),
        }
        for p in record.provenance
    )
    recordings: list[set[str]] = []
    for _, devices in shards.groupby("kernel")["device"].agg(set).items():
        apart = [r for r in recordings if not r & devices]
        recordings = [*apart, set().union(devices, *(r for r in recordings if r & devices))]
    parts = [shards[shards["device"].isin(devices)] for devices in recordings]
    return [_recording(part) for part in sorted(parts, key=lambda part: part["at"].min())]


def _recording(part: pd.DataFrame) -> list[str]:
    kernels = sorted(set(part["kernel"]))
    dots = all(k.startswith(DOT) for k in kernels)
    first, last = part["at"].min(), part["at"].max()
    return [
        joined(f"`{k}`" for k in kernels) if dots else "all other kernels",
        joined(f"…{uuid[-6:]}" for uuid in sorted(set(part["device"]))),
        joined(str(n) for n in sorted(set(part["cores"]))),
        joined(str(n) for n in sorted(set(part["repeats"]))),
        str(len(part)),
        f"{first:%m-%d %H:%M:%S} to {last:%H:%M:%S}",
    ]


def _state(record: Record) -> list[list[str]]:
    """NVML's readings, of the dot products apart: number, clock, temperature, power, slow-downs."""
    readings = record.readings()
    dots = readings["kernel"].str.startswith(DOT)
    lines = []
    for name, part in (("dot products", readings[dots]), ("all other kernels", readings[~dots])):
        slowed = int((part["reasons"].map(len) > 0).sum())
        lines.append(
            [
                name,
                whole(len(part)),
                _ends(part["sm_clock_mhz"]),
                _ends(part["temperature_c"]),
                _ends(part["power_w"]),
                whole(slowed),
            ]
        )
    return lines


def _ends(column: pd.Series) -> str:
    low, high = f"{column.min():.0f}", f"{column.max():.0f}"
    return low if low == high else f"{low} to {high}"


def _half_widths(ok: pd.DataFrame) -> pd.Series:
    """Half of the 95 % interval of each cell's median, as a share of the median."""
    return (ok["median_high_s"] - ok["median_low_s"]) / (2 * ok["median_s"])


def _kinds(ok: pd.DataFrame) -> list[tuple[str, pd.Series]]:
    """Cells by what makes their intervals wide: length and cache state, and the host's part."""
    long, flushed = ok["median_s"] >= LONG_S, ok["cache_state"] == "flushed"
    dots = ok["kernel"].str.startswith(DOT)
    return [
        ("launches of 50 µs and more", ~dots & long),
        ("shorter, warm", ~dots & ~long & ~flushed),
        ("shorter, flushed", ~dots & ~long & flushed),
        ("dot products", dots),
    ]


def _widths(ok: pd.DataFrame) -> list[list[str]]:
    """For each kind of cell: how many, their durations, half-widths, copies' half-widths."""
    half = _half_widths(ok)
    lines = []
    for name, chosen in _kinds(ok):
        part = half[chosen]
        times = ok.loc[chosen, "median_s"]
        lines.append(
            [
                name,
                whole(int(chosen.sum())),
                percent(float(part.median())),
                percent(float(part.quantile(0.95))),
                f"{1e6 * times.quantile(0.025):.0f} to {1e6 * times.quantile(0.975):.0f} µs",
            ]
        )
    return lines


def _unmet(record: Record) -> dict[str, str]:
    """The share of cells that ended with an interval wider than their configuration asked."""
    asked = {
        p["params"]["folder"].split("/")[-1]: p["params"]["measure"]["relative_half_width"]
        for p in record.provenance
    }
    ok = record.ok
    # Where the interval is of several repeats, what a cell stops at is that of its samples alone.
    half = ok.get("within_half_width", _half_widths(ok))
    wide = half > ok["kernel"].map(asked).astype(float) * (1 + 1e-9)
    dots = ok["kernel"].str.startswith(DOT)
    short_flushed = ~dots & (ok["median_s"] < LONG_S) & (ok["cache_state"] == "flushed")
    others = {v for k, v in asked.items() if not k.startswith(DOT)}
    return {
        "asked": " or ".join(percent(v, 1) for v in sorted(others)),
        "unmet": whole_percent(float(wide[~dots].mean())),
        "unmet_short_flushed": percent(float(wide[short_flushed].mean()), 3),
        "unmet_dots": whole_percent(float(wide[dots].mean())),
    }
