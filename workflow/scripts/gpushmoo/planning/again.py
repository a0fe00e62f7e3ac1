"""Which shards hold cells that are to be measured again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ..core.schema import Status
from ..storage.store import BadParquetError, open_shard


def cells_ended_as(
    statuses: Collection[Status], paths: Iterable[str]
) -> dict[str, Counter[Status]]:
    """How many cells ended with each of `statuses`, by the path of every shard that has any.

    A shard that is not there, or damaged, has none: it is measured anew for that.
    """
    counts = {path: _count(statuses, Path(path)) for path in paths if Path(path).exists()}
    return {path: cells for path, cells in counts.items() if cells}


def sentence(counts: Mapping[str, Counter[Status]]) -> str:
    """What is measured again, for the terminal."""
    cells = sum(counts.values(), Counter[Status]())
    if not cells:
        return "again: no cell ended so; nothing is measured again."
    parts = ", ".join(f"{n} {status}" for status, n in sorted(cells.items()))
    shards = "1 shard" if len(counts) == 1 else f"{len(counts)} shards"
    return f"again: {cells.total()} cells ({parts}) in {shards}, measured again with later repeats."


def _count(statuses: Collection[Status], path: Path) -> Counter[Status]:
    try:
        ended = [
            status
            for batch in open_shard(path).batches()
            for status in batch.column("status").to_pylist()
        ]
    except BadParquetError:
        return Counter()
    return Counter(Status(status) for status in ended if status in statuses)
