"""Records the launches tied with a kernel's fastest, and holds later sweeps to them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analysis.best import cost_of
from ..analysis.fastest import axes_of, params_text
from ..comparing.compare import group_words, percent
from ..core.schema import GROUP, Status
from ..interactive.measure import Sweep, sweep
from ..planning.config_schema import ConfigError
from ..storage.wholefile import write_whole

if TYPE_CHECKING:
    from pandas import DataFrame

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
    """What is wrong with the launches of a kernel that `file` records, a sentence each.

    Swept are the values of the tied launches, and of each axis `sample` of all; or all, and the
    file gets what is tied, if `renew`. `asked` are arguments of `sweep`. Raises ConfigError and
    DeviceError where nothing can be said.
    """
    rows = json.loads(file.read_text(encoding="utf-8"))["groups"] if file.is_file() else []
    own = [row for row in rows if row["kernel"] == kernel.name]
    if own and not renew:
        asked["axes"] = _few_values(own, sample)
    result = sweep(kernel, progress=False, **asked)
    groups = dict(list(result.cells.groupby([*GROUP], observed=True)))
    if renew:
        # What was recorded of others, such as other devices, stays.
        new = {_name(row): row for row in rows} | {_name(row): row for row in _tied(result, groups)}
        told = {"groups": [row for _, row in sorted(new.items())]}
        write_whole(file, f"{json.dumps(told, indent=1, ensure_ascii=False)}\n".encode())
        return []
    there = [row for row in own if _name(row) in groups]
    if not there:
        raise ConfigError(f"'{file}' records no such launch on this device; use --shmoo-record.")
    return [line for row in there for line in _faults(row, groups[_name(row)], threshold, slower)]


def _name(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in GROUP)


def _tied(result: Sweep, groups: Mapping[Any, DataFrame]) -> Iterator[dict[str, Any]]:
    """What is kept of each group: the launches that are tied, the fastest first."""
    for key, best in result.best.groupby([*GROUP], observed=True):
        axes = axes_of(groups[key])
        tied = best.sort_values("median_s", kind="stable").to_dict("records")
        yield {
            **{name: tied[0][name] for name in GROUP},
            "axes": {axis: sorted(map(int, groups[key][axis].unique())) for axis in axes},
            "tied": [{axis: int(row[axis]) for axis in axes} for row in tied],
            # NaN, where no copy was measured beside it, is no JSON.
            "vs_memcpy": tied[0]["vs_memcpy"] if tied[0]["vs_memcpy"] > 0 else None,
        }


def _few_values(rows: Sequence[Row], sample: int) -> dict[str, list[int]]:
    found: dict[str, set[int]] = {}
    for row in rows:
        for axis, values in row["axes"].items():
            few = values[:: max(1, math.ceil(len(values) / sample))]
            found.setdefault(axis, set()).update(few, (launch[axis] for launch in row["tied"]))
    return {axis: sorted(values) for axis, values in found.items()}


def _faults(row: Row, cells: DataFrame, threshold: float, slower: float) -> Iterator[str]:
    """What is wrong with the recorded launch of a group, of which these are the cells now."""
    launch = row["tied"][0]
    words = f"{group_words(row)}: {params_text(launch, [*launch])}"
    mine = cells[(cells[[*launch]] == [*launch.values()]).all(axis=1)]
    if mine.empty or mine["status"].iloc[0] != Status.OK:
        yield f"{words} {'is no launch' if mine.empty else 'ended as ' + mine['status'].iloc[0]}."
        return
    ok = cells[cells["status"] == Status.OK]
    own, best = mine.iloc[0], ok.loc[ok["median_s"].idxmin()]
    cost = cost_of(own, best)
    if cost.low > threshold:
        more = f"{percent(cost.value)} longer, {percent(cost.low)} at least"
        yield f"{words} takes {more}, than {params_text(best, [*launch])}."
    longer = (row["vs_memcpy"] or math.nan) / own["vs_memcpy"] - 1.0
    if (1.0 + longer) * own["own_low_s"] / own["median_s"] - 1.0 > slower:
        yield f"{words} takes {percent(longer)} longer beside a plain copy than when recorded."
