"""Record the launches that are tied with a kernel's fastest, and compare later sweeps with them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...analysis.best import cost_of
from ...analysis.fastest import params_text
from ...comparing.compare import group_words, percent
from ...core.errors import ConfigError
from ...core.schema import GROUP
from ...exporting.choices import ExportGroup, groups_of, point_of
from ...interactive.measure import sweep
from ...storage.wholefile import write_atomic

Row = Mapping[str, Any]


def hold(
    kernel: Path,
    file: Path,
    renew: bool,
    threshold: float = 0.01,
    slower: float = 0.1,
    sample: int = 3,
    **asked: Any,
) -> list[str]:
    """Return a sentence for each recorded launch of a kernel that got slower.

    It sweeps the values of the tied launches, and `sample` values of each axis. With `renew` it
    sweeps all, and writes the tied launches to the file. `asked` are arguments of `sweep`. Raises
    ConfigError and DeviceError if it cannot measure.
    """
    rows = json.loads(file.read_text(encoding="utf-8"))["groups"] if file.is_file() else []
    known = {_name(row): row for row in rows}
    absent = ConfigError(f"'{file}' records no such launch on this device; use --shmoo-record.")
    if not renew:
        own = [row for row in rows if row["kernel"] == kernel.name]
        if not own:
            raise absent
        asked["axes"] = _few_values(own, sample)
    groups = {_name(g.key): g for g in groups_of(sweep(kernel, progress=False, **asked).cells)}
    if renew:
        # Records of other devices stay.
        known |= {name: _tied(group) for name, group in groups.items() if group.ok}
        told = {"groups": [row for _, row in sorted(known.items())]}
        write_atomic(file, f"{json.dumps(told, indent=1, ensure_ascii=False)}\n".encode())
        return []
    there = known.keys() & groups.keys()
    if not there:
        raise absent
    faults = (_faults(known[name], groups[name], threshold, slower) for name in sorted(there))
    return [line for lines in faults for line in lines]


def _name(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in GROUP)


def _tied(group: ExportGroup) -> dict[str, Any]:
    """Return the record of a group: the tied launches, the fastest first."""
    share = group.fastest["vs_memcpy"]
    return {
        **group.key,
        "axes": {axis: sorted(map(int, group.cells[axis].unique())) for axis in group.axes},
        "tied": [dict(launch) for launch in group.ok if launch in group.tied],
        # JSON does not have NaN, the value without a measured copy.
        "vs_memcpy": share if share > 0 else None,
    }


def _few_values(rows: Sequence[Row], sample: int) -> dict[str, list[int]]:
    found: dict[str, set[int]] = {}
    for row in rows:
        for axis, values in row["axes"].items():
            few = values[:: max(1, math.ceil(len(values) / sample))]
            found.setdefault(axis, set()).update(few, (launch[axis] for launch in row["tied"]))
    return {axis: sorted(values) for axis, values in found.items()}


def _faults(row: Row, group: ExportGroup, threshold: float, slower: float) -> Iterator[str]:
    """Yield the regressions of the launch that was the fastest of a group."""
    launch = row["tied"][0]
    words = f"{group_words(row)}: {params_text(launch, [*launch])}"
    own = group.ok.get(point_of(launch, [*launch]))
    if own is None:
        yield f"{words} does not work."
        return
    cost = cost_of(own, group.fastest)
    if cost.low > threshold:
        more = f"{percent(cost.value)} longer, {percent(cost.low)} at least"
        yield f"{words} takes {more}, than {params_text(group.fastest, group.axes)}."
    longer = (row["vs_memcpy"] or math.nan) / own["vs_memcpy"] - 1.0
    if (1.0 + longer) * own["group_low_s"] / own["median_s"] - 1.0 > slower:
        yield f"{words} takes {percent(longer)} longer beside a plain copy than when recorded."
