"""Whether what a rule has made is as it was written: asked of all of it whenever a run starts."""

from __future__ import annotations

from pathlib import Path

from ..storage.dataset_seal import glance
from ..storage.store import check_table, is_whole
from ..storage.wholefile import DamagedFileError, read_summed


def damage(path: Path) -> str | None:
    """What is wrong with a product of any rule but the measuring ones, in one sentence.

    None for one that is as it was written, and for one that is not there. A file is read whole;
    of a data set its list of files and its provenance are, and both ends of each file of cells.
    """
    if not path.exists():
        return None
    try:
        if path.is_dir():
            glance(path)
        elif path.suffix == ".parquet":
            check_table(path)
        else:
            read_summed(path)
    except DamagedFileError as err:
        return str(err)
    return None


def damage_of_shard(path: Path) -> str | None:
    """As `damage`, for a shard: looks at both ends alone, since it may hold gigabytes."""
    if not path.exists() or is_whole(path):
        return None
    return f"'{path}' is not a whole Parquet file (truncated or foreign)."
