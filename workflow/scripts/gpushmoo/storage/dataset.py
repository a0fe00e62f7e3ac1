"""Reads a run's dataset for the analysing stages, no more of it than they need, and checks that."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..core.schema import SAMPLE_COUNT, is_axis
from ..core.space import LAUNCH_KINDS
from .dataset_seal import check, parquet_files
from .frames import as_frame
from .store import BadParquetError

if TYPE_CHECKING:
    import pandas as pd

# Most of a dataset; how many there are is all that a stage asks of them.
SAMPLES = ("samples_s", "sampled_at_s")
# Names, whatever they look like.
_PARTITIONS = ds.partitioning(
    pa.schema([("kernel", pa.string()), ("dtype", pa.string())]), None, "hive"
)


def read_cells(
    dataset: Path, where: Mapping[str, Any] | None = None, columns: Collection[str] | None = None
) -> pd.DataFrame:
    """The cells, one row each, whose columns have the values in `where` (one, or a list of them).

    Of the kernels and dtypes that it leaves out nothing is read. `columns` are those wanted, all by
    default; axes are no names of `columns`, they always come along, as nullable whole numbers.
    The frame cannot be written to, for it shares Arrow's memory: who changes values takes a copy.
    """
    with _readable(dataset):
        source = _open(dataset, where)
        names = [n for n in source.schema.names if columns is None or n in columns or is_axis(n)]
        return as_frame(source.to_table(columns=names, filter=_filter(where, source.schema)))


def read_medians(dataset: Path, where: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """As `read_cells`, but with the number of samples, SAMPLE_COUNT, in place of the samples."""
    with _readable(dataset):
        source = _open(dataset, where)
        fields = {n: pc.field(n) for n in source.schema.names if n not in SAMPLES}
        fields[SAMPLE_COUNT] = pc.list_value_length(pc.field(SAMPLES[0]))
        # A few row groups at a time: what is read ahead would be most of the memory.
        scanner = source.scanner(
            columns=fields,
            filter=_filter(where, source.schema),
            batch_readahead=2,
            fragment_readahead=1,
        )
        return as_frame(scanner.to_table())


def partitions(dataset: Path) -> Iterator[dict[str, str]]:
    """Kernel and dtype of each partition, sorted, in the form of `where`."""
    yield from sorted(
        _keys(parquet_files(dataset)).values(), key=lambda k: (k["kernel"], k["dtype"])
    )


def _keys(names: Collection[str]) -> dict[str, dict[str, str]]:
    """The keys of each file's partition."""
    return {n: dict(part.split("=", 1) for part in n.split("/")[:-1]) for n in names}


def _open(dataset: Path, where: Mapping[str, Any] | None) -> ds.Dataset:
    """The files in which there may be cells of `where`, after a check of each."""
    names = parquet_files(dataset)
    wanted = [
        name
        for name, keys in _keys(names).items()
        if all(keys[k] in _several((where or {}).get(k, keys[k])) for k in keys)
    ]
    # Of one file at least the columns are read.
    wanted = wanted or names[:1]
    check(dataset, wanted)
    return ds.dataset(
        [str(dataset / name) for name in wanted], partitioning=_PARTITIONS, format="parquet"
    )


@contextmanager
def _readable(dataset: Path) -> Iterator[None]:
    """Have a file that goes while it is read, set aside by another job, be a BadParquetError."""
    try:
        yield
    except OSError as err:
        raise BadParquetError(dataset, f"cannot be read: {str(err).splitlines()[0]}") from err


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set | frozenset) else [value]


def _filter(where: Mapping[str, Any] | None, schema: pa.Schema) -> ds.Expression | None:
    found = None
    for name, value in (where or {}).items():
        values = pa.array(_several(value), schema.field(name).type)
        term = pc.field(name).isin(values)
        found = term if found is None else found & term
    return found


def of_one_kind(rows: pd.DataFrame) -> pd.DataFrame:
    """Of several kinds of launch the rows of that which LAUNCH_KINDS names first."""
    present = set(rows["launch_kind"])
    return rows[rows["launch_kind"] == next((k for k in LAUNCH_KINDS if k in present), "")]


def matching(rows: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """The rows that have these values in these columns."""
    return rows[(rows[list(where)] == list(where.values())).all(axis=1)]
