"""Many runs as one history with pictures: the function of that name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..comparing import CompareError
from ..comparing.history import DELTA, History, history_of, read_runs
from ..figures.style import save, set_style
from ..figures.timelines import CAPTION, draw_timelines
from ..storage.dataset import runs_in

Place = str | os.PathLike[str]


def history(
    runs: Sequence[Place],
    *,
    otava: str | None = None,
    threshold: float = DELTA,
    out: Place | None = None,
) -> History:
    """The bests of `runs` in the order of time.

    Each is a run's folder, a data set, a folder of shards, or a folder of runs (its finished ones).

    Change points are found by the program `otava` (Apache Otava, in an environment of its own), by
    default that on the PATH; changes under `threshold`, a share, are left out. Into the folder
    `out` go ``history.parquet``, ``change_points.parquet``, ``summary.md`` and a picture for each
    kernel. Raises CompareError, a ValueError, with one sentence.
    """
    places = [place for named in runs for place in _runs_in(Path(named).expanduser())]
    found = history_of(read_runs(places), otava, threshold)
    if out is not None:
        try:
            found.save(out, _drawn(found, Path(out).expanduser()))
        except OSError as err:
            raise CompareError(f"'{out}' cannot be written ({err.strerror}).") from err
    return found


def _runs_in(place: Path) -> list[Path]:
    # What is no folder is refused when it is read.
    return runs_in(place) if place.is_dir() else [place]


def _drawn(found: History, folder: Path) -> list[str]:
    """Draw each kernel's groups; the names of the files in `folder`."""
    set_style()
    names = []
    for kernel, rows in found.rows.groupby("kernel", observed=True):
        name = f"{kernel}.svg"
        changes = found.changes[found.changes["kernel"] == kernel]
        save(
            draw_timelines(rows, changes),
            folder / name,
            f"{kernel} over {found.rows['number'].nunique()} runs",
            CAPTION,
        )
        names.append(name)
    return names
