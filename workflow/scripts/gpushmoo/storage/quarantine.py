"""Files that cannot be used are set aside: kept to be looked at, and never averaged in."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .wholefile import sync, whole_file

FOLDER = "quarantine"
# Renaming does not do: from one file system to another, or of a folder that is a mount.
_BY_COPY = frozenset({errno.EXDEV, errno.EBUSY})


def set_aside(paths: Sequence[Path], run: Path) -> list[Path]:
    """Move files (or data sets) of the run's folder into its quarantine, under their paths there.

    A file that lies there already keeps its name and the new one gets a number. What counts is the
    path as it is given: folders of the run may be links or mounts. Files outside of `run` (a
    recorded data set) stay where they are and are not among those returned, nor are those that
    another job has moved. Raises OSError (no space, read-only).
    """
    moved = []
    folder = Path(os.path.abspath(run))
    for path in paths:
        place = Path(os.path.abspath(path))
        if not place.is_relative_to(folder) or not os.path.lexists(place):
            continue
        wanted = run / FOLDER / place.relative_to(folder)
        wanted.parent.mkdir(parents=True, exist_ok=True)
        target, number = wanted, 1
        while os.path.lexists(target):
            number += 1
            target = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
        with suppress(FileNotFoundError):
            _move(place, target)
            moved.append(target)
    return moved


def _move(path: Path, target: Path) -> None:
    if path.is_symlink():
        # What it names stays where it is. A relative name would not be found from elsewhere.
        target.symlink_to(path.resolve())
        path.unlink()
        return
    try:
        os.replace(path, target)
        sync(target.parent)
    except OSError as err:
        if err.errno not in _BY_COPY:
            raise
        _copy(path, target)


def _copy(path: Path, target: Path) -> None:
    """Copy and remove: a data set file by file, of which a mount's own folder stays."""
    if not path.is_dir():
        with whole_file(target) as own:
            shutil.copy2(path, own)
        path.unlink()
        return
    target.mkdir()
    for inside in sorted(path.iterdir()):
        _move(inside, target / inside.name)
    if not path.is_mount():
        path.rmdir()
