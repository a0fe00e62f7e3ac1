"""Tables and shards as versions before schema version 6 wrote them."""

from pathlib import Path

import pyarrow as pa
from gpushmoo.core.schema import RENAMED_COLUMNS, RENAMED_STATUSES
from gpushmoo.storage.store import LATER_COLUMNS, read_shard, write_parquet

_FORMER_COLUMNS = {now: former for former, now in RENAMED_COLUMNS.items()}
_FORMER_STATUSES = {now.value: former for former, now in RENAMED_STATUSES.items()}


def with_former_names(table: pa.Table) -> pa.Table:
    """Return `table` with the former names of its columns and statuses."""
    table = table.rename_columns([_FORMER_COLUMNS.get(n, n) for n in table.column_names])
    if "status" not in table.column_names:
        return table
    place = table.schema.get_field_index("status")
    former = [_FORMER_STATUSES.get(s, s) for s in table.column(place).to_pylist()]
    return table.set_column(place, table.schema.field(place), pa.array(former, pa.string()))


def made_older(path: Path, version: int = 5) -> None:
    """Rewrite the shard in `path` as one of an older schema version."""
    table, metadata = read_shard(path)
    later = [name for name in table.column_names if name in LATER_COLUMNS[version]]
    older = with_former_names(table.drop_columns(later))
    write_parquet(older, path, metadata | {"schema_version": version})
