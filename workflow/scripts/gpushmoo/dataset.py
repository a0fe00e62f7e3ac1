"""Reads a run's dataset for the analysing stages, no more of it than they need."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from .schema import CORE_COLUMNS

# Most of a dataset; how many there are is all that a stage asks of them.
SAMPLES = ("samples_s", "sampled_at_s")
# Names, whatever they look like.
_PARTITIONS = ds.partitioning(
    pa.schema([("kernel", pa.string()), ("dtype", pa.string())]), None, "hive"
)


def read_cells(
    dataset: Path,
    where: Mapping[str, Any] | None = None,
    columns: Collection[str] | None = None,
) -> pd.DataFrame:
    """The cells, one row each, whose columns have the values in `where` (one, or a list of them).

    Of the kernels and dtypes that it leaves out nothing is read. `columns` are those wanted, all by
    default; axes are no names of `columns`, they always come along.
    The frame cannot be written to, for it shares Arrow's memory: who changes values takes a copy.
    """
    source = _open(dataset)
    names = [
        n for n in source.schema.names if columns is None or n in columns or n not in CORE_COLUMNS
    ]
    return _plain(source.to_table(columns=names, filter=_filter(where, source.schema)))


def read_medians(dataset: Path, where: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """As `read_cells`, but with the number of samples (``samples``) in the place of the samples."""
    source = _open(dataset)
    fields = {n: pc.field(n) for n in source.schema.names if n not in SAMPLES}
    fields["samples"] = pc.list_value_length(pc.field(SAMPLES[0]))
    # A few row groups at a time: what is read ahead would be most of the memory.
    scanner = source.scanner(
        columns=fields,
        filter=_filter(where, source.schema),
        batch_readahead=2,
        fragment_readahead=1,
    )
    return _plain(scanner.to_table())


def partitions(dataset: Path) -> Iterator[dict[str, str]]:
    """Kernel and dtype of each partition, sorted, in the form of `where`."""
    keys = (ds.get_partition_keys(f.partition_expression) for f in _open(dataset).get_fragments())
    yield from sorted(keys, key=lambda k: (k["kernel"], k["dtype"]))


def _open(dataset: Path) -> ds.Dataset:
    return ds.dataset(dataset, partitioning=_PARTITIONS, format="parquet")


def _filter(where: Mapping[str, Any] | None, schema: pa.Schema) -> ds.Expression | None:
    found = None
    for name, value in (where or {}).items():
        several = isinstance(value, list | tuple | set | frozenset)
        values = pa.array(list(value) if several else [value], schema.field(name).type)
        term = pc.field(name).isin(values)
        found = term if found is None else found & term
    return found


def _plain(table: pa.Table) -> pd.DataFrame:
    # Each column is let go of when it is converted.
    return table.to_pandas(split_blocks=True, self_destruct=True)


def matching(rows: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """The rows that have these values in these columns."""
    return rows[(rows[list(where)] == list(where.values())).all(axis=1)]
