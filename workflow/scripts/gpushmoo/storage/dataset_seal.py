"""The list of a folder's files with their sums: written last, checked before anything is read.

Sealed folders are data sets and exports; each takes the place of an earlier one as a whole.

Apart from reading the cells: planning looks at data sets before every start, and what reads their
cells takes as long to import as Snakemake.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from .store import BadParquetError, is_whole
from .wholefile import DamagedFileError, read_json, sync, write_json

# SHA-256 of every file of a dataset. Readers of data sets pass over names that begin with '_'.
SUMS = "_sha256.json"


@contextmanager
def replaced_folder(out: Path) -> Iterator[Path]:
    """Give a new folder beside `out` to fill; in the end it is sealed and takes the place of `out`.

    The old one goes only when all of the new one is on the disk. Whatever is raised while it is
    filled, and OSError (no space), leave `out` as it was and nothing beside it.
    """
    fresh = out.with_name(f".{out.name}.{os.getpid()}.{uuid.uuid4().hex}")
    try:
        fresh.mkdir(parents=True)
        yield fresh
        seal(fresh)
        if out.exists():
            shutil.rmtree(out)
        fresh.rename(out)
        sync(out.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def seal(dataset: Path) -> None:
    """Note what the files of a new dataset hold, for `check`, and have all of it on the disk."""
    inside = sorted(dataset.rglob("*"))
    for path in inside:
        sync(path)
    sums = {p.relative_to(dataset).as_posix(): _sum(p) for p in inside if p.is_file()}
    write_json(dataset / SUMS, {"files": sums})


def check(dataset: Path, names: Collection[str]) -> None:
    """Raise BadParquetError if one of these files no longer is as it was written."""
    sums = _sums(dataset)
    for name in names:
        try:
            found = _sum(dataset / name)
        except OSError as err:
            raise BadParquetError(dataset, f"cannot be read: {name}: {err.strerror}.") from err
        if found != sums.get(name):
            raise BadParquetError(
                dataset, f"no longer holds what was written: '{name}' has changed."
            )


def glance(dataset: Path) -> None:
    """Raise BadParquetError if a file is missing or cut off: `check` without reading the cells."""
    parquet = set(parquet_files(dataset))
    for name in parquet:
        if not is_whole(dataset / name):
            raise BadParquetError(dataset, f"is not whole: '{name}' is missing or cut off.")
    check(dataset, _sums(dataset).keys() - parquet)


def _sums(dataset: Path) -> dict[str, str]:
    try:
        sums: dict[str, str] = read_json(dataset / SUMS)["files"]
    except DamagedFileError as err:
        # The whole data set is of no use: a name that has changed would leave a partition out.
        raise BadParquetError(dataset, f"has no sound list of its files: {err}") from err
    return sums


def _sum(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def parquet_files(dataset: Path) -> list[str]:
    """Names of the data set's Parquet files, below its folder. Raises BadParquetError."""
    return [name for name in _sums(dataset) if name.endswith(".parquet")]
