"""Find a run's data set, and read the parts that a stage needs.

A data set is a folder of Parquet files, ``kernel=…/dtype=…/part-0.parquet``, with the provenance of
its shards. The folder is replaced as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import BadParquetError
from ..core.run_plan import PLAN_FILE, SAVED
from ..core.schema import RENAMED_COLUMNS, SAMPLE_COUNT, is_axis
from ..core.space import TIMING_MODES
from .store import PACKED, check_table, with_present_names

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.dataset as ds

# This file has a line for each shard, in the order of the partitions. Readers of data sets skip
# names that begin with '_'. Within the Parquet files, the provenance of some thousand shards would
# exceed the limit of readers (100 MB).
PROVENANCE = "_provenance.jsonl.zst"
PARTITION = ("kernel", "dtype")
# The samples are most of a data set, but stages need only their number.
SAMPLES = ("samples_s", "sampled_at_s")
# The key of pandas' note in a file's schema.
_PANDAS = b"pandas"


# Location of data sets


def finished_dataset(run: Path) -> Path | None:
    """Return the finished data set in a run's folder, or None."""
    # A folder that is a mount point cannot be replaced, so its data set is within it.
    places = (run / "dataset", run / "dataset" / "data")
    return next((place for place in places if (place / PROVENANCE).is_file()), None)


def place_of_products(run: Path) -> Path:
    """Return the folder of a run or a saved sweep; for recorded data, the current folder."""
    named = any((run / name).is_file() for name in (PLAN_FILE, SAVED))
    return run if named or finished_dataset(run) else Path()


def finished_runs(folder: Path) -> list[Path]:
    """Return the runs with a data set in a folder of runs, by name; none if it is missing."""
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in inside if finished_dataset(path)]


def runs_in(folder: Path) -> list[Path]:
    """Return the finished runs of a folder of runs, by name; `folder` itself if it is a run."""
    if is_run(folder):
        return [folder]
    return finished_runs(folder) if any(map(is_run, folder.iterdir())) else [folder]


def data_sets_in(folder: Path) -> list[Path]:
    """Return the runs and recorded data sets directly in a folder, by name.

    The list is empty if the folder itself is a run or a data set. If it is not empty, the Parquet
    files below the folder are not the shards of one data set.
    """
    if is_run(folder) or (folder / PACKED).is_file():
        return []
    inside = sorted(path for path in folder.iterdir() if path.is_dir())
    return [path for path in inside if is_run(path) or (path / PACKED).is_file()]


def is_run(folder: Path) -> bool:
    """Return whether the folder is that of a run, finished or not, or of an aggregated data set."""
    is_one = any((folder / name).is_file() for name in (PLAN_FILE, PROVENANCE))
    return is_one or finished_dataset(folder) is not None


# Cells of a data set


def read_cells(
    dataset: Path, where: Mapping[str, Any] | None = None, columns: Collection[str] | None = None
) -> pd.DataFrame:
    """Read the cells, one row each, whose columns have the values in `where`.

    Parameters
    ----------
    dataset
        Folder of the data set.
    where
        A value, or a list of values, by column. Partitions of other kernels and types are not read.
    columns
        Columns to read, by default all. Axes are always read, as nullable whole numbers.

    Returns
    -------
    Data frame that shares Arrow's memory: copy it before you change values.

    Raises
    ------
    BadParquetError
        If the data set is damaged.
    """
    with readable(dataset):
        source = _open(dataset)
        names = [
            name
            for name in source.schema.names
            if columns is None or RENAMED_COLUMNS.get(name, name) in columns or is_axis(name)
        ]
        found = source.to_table(columns=names, filter=_filter(where, source.schema))
        return as_frame(with_present_names(found))


def read_medians(dataset: Path, where: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Read cells with the number of samples, SAMPLE_COUNT, instead of the samples."""
    with readable(dataset):
        source = _open(dataset)
        fields = {n: pc.field(n) for n in source.schema.names if n not in SAMPLES}
        fields[SAMPLE_COUNT] = pc.list_value_length(pc.field(SAMPLES[0]))
        found = source.to_table(columns=fields, filter=_filter(where, source.schema))
        return as_frame(with_present_names(found))


def partitions(dataset: Path) -> Iterator[dict[str, str]]:
    """Yield kernel and type of each partition, sorted, in the form of `where`."""
    for path in sorted(dataset.glob("kernel=*/dtype=*/*.parquet")):
        yield dict(part.split("=", 1) for part in path.relative_to(dataset).parts[:-1])


@contextmanager
def readable(dataset: Path) -> Iterator[None]:
    """Turn errors of a damaged data set, or of one set aside meanwhile, into BadParquetError."""
    try:
        yield
    except (pa.ArrowException, OSError) as err:
        raise unreadable(dataset, _fault(dataset, err)) from err


def unreadable(dataset: Path, fault: str) -> BadParquetError:
    """Return the error for a damaged data set, with the remedy; `fault` is a sentence."""
    return BadParquetError(
        dataset,
        f"cannot be read: {fault.rstrip('.')}. Start its run again with --forcerun aggregate, "
        "which makes it from the run's shards. If it is a copy, copy it again.",
    )


def _fault(dataset: Path, err: Exception) -> str:
    """Return the sentence on the damaged file; the error's own text if all files can be read."""
    for path in sorted(dataset.rglob("*.parquet")):
        try:
            check_table(path)
        except BadParquetError as bad:
            return str(bad)
    return str(err).splitlines()[0]


def _open(dataset: Path) -> ds.Dataset:
    # This import needs pandas. Planning, which only looks for data sets, must not import it.
    import pyarrow.dataset as ds

    # Names are texts, even those that look like numbers.
    types = pa.schema([(name, pa.string()) for name in PARTITION])
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    return ds.dataset(
        dataset,
        format=ds.ParquetFileFormat(default_fragment_scan_options=checked),
        partitioning=ds.partitioning(types, flavor="hive"),
        exclude_invalid_files=False,
    )


def _filter(where: Mapping[str, Any] | None, schema: pa.Schema) -> ds.Expression | None:
    terms = []
    for name, value in (where or {}).items():
        several = value if isinstance(value, list | tuple | set | frozenset) else [value]
        terms.append(pc.field(name).isin(pa.array(several, schema.field(name).type)))
    return reduce(and_, terms) if terms else None


# Frames of cells


def of_one_mode(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one timing mode, the first in TIMING_MODES."""
    present = set(rows["timing_mode"])
    return rows[rows["timing_mode"] == next((k for k in TIMING_MODES if k in present), "")]


def matching(rows: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows that have these values in these columns."""
    return rows[(rows[list(where)] == list(where.values())).all(axis=1)]


def with_axes_noted(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with a note for pandas that axes, which may be null, are whole numbers."""
    axes = [
        {"name": n, "field_name": n, "pandas_type": "int64", "numpy_type": "Int64"}
        | {"metadata": None}
        for n in schema.names
        if is_axis(n)
    ]
    note = {"index_columns": [], "column_indexes": [], "columns": axes, "pandas_version": "2.2.0"}
    return schema.with_metadata({**(schema.metadata or {}), _PANDAS: json.dumps(note).encode()})


def as_frame(table: pa.Table) -> pd.DataFrame:
    """Convert the rows to a frame that shares Arrow's memory; axes are columns of type Int64."""
    noted = table.cast(with_axes_noted(table.schema))
    # Each column is freed once it is converted.
    return noted.to_pandas(split_blocks=True, self_destruct=True)
