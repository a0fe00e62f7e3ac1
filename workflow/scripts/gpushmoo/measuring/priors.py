"""What recorded shards of a kernel let expect of its launches elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ..core.schema import Status
from ..core.space import CellGroup, Problem
from ..search.planner import Prior
from ..storage.packed import unpacked
from ..storage.store import open_shard

# A recorded group: its element type, and what a cell's group is.
RecordedGroup = tuple[str, CellGroup]
_GROUP = ("dtype", "height", "width", "cache_state", "variant", "launch_kind")


class RecordedLaunches:
    """The verified cells of one kernel in a folder of shards, by group."""

    def __init__(self, groups: Mapping[RecordedGroup, Sequence[Prior]]) -> None:
        self._groups = groups

    def near(self, dtype: str, group: CellGroup) -> Sequence[Prior]:
        """The cells of the most similar group; none where the variant was not recorded.

        Of groups in the same state of the cache, launched alike, of the same type, of the nearest
        size, in this order.
        """

        def unlike(recorded: RecordedGroup) -> tuple[bool, bool, bool, float]:
            other = recorded[1]
            size = math.log(_elements(other.problem) / _elements(group.problem))
            return (
                other.cache_state != group.cache_state,
                other.launch_kind != group.launch_kind,
                recorded[0] != dtype,
                abs(size),
            )

        same = [recorded for recorded in self._groups if recorded[1].variant == group.variant]
        return self._groups[min(same, key=unlike)] if same else ()


NOTHING_RECORDED = RecordedLaunches({})


def _elements(problem: Problem) -> int:
    return problem.height * problem.width


def recorded_launches(folder: Path, kernel: str) -> RecordedLaunches:
    """Those of `kernel` in all shards under `folder`. Raises BadParquetError."""
    found: dict[RecordedGroup, list[tuple[tuple[tuple[str, int], ...], float]]] = {}
    for path in sorted(unpacked(folder).rglob("*.parquet")):
        shard = open_shard(path)
        if Path(shard.metadata["params"]["folder"]).name == kernel:
            table = pa.Table.from_batches(list(shard.batches()), schema=shard.schema)
            ok = pc.equal(table.column("status"), Status.OK)
            _add(found, table.filter(ok), shard.metadata["axes"])
    return RecordedLaunches({group: _priors(cells) for group, cells in found.items()})


def _add(
    found: dict[RecordedGroup, list[tuple[tuple[tuple[str, int], ...], float]]],
    table: pa.Table,
    axes: Sequence[str],
) -> None:
    columns = [table.column(name).to_pylist() for name in (*_GROUP, "median_s", *axes)]
    for dtype, height, width, state, variant, kind, median_s, *values in zip(*columns, strict=True):
        group = dtype, CellGroup(Problem(height, width), state, variant, kind)
        params = tuple(sorted(zip(axes, values, strict=True)))
        found.setdefault(group, []).append((params, median_s))


def _priors(cells: Sequence[tuple[tuple[tuple[str, int], ...], float]]) -> list[Prior]:
    fastest_s = min(seconds for _, seconds in cells)
    return [Prior(params, seconds / fastest_s) for params, seconds in cells]
