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
    places = [Path(named).expanduser() for named in runs]
    # A place that is no folder is refused when it is read.
    found = history_of(
        read_runs([run for p in places for run in (runs_in(p) if p.is_dir() else [p])]),
        otava,
        threshold,
    )
    if out is not None:
        try:
            found.save(out, _drawn(found, Path(out).expanduser()))
        except OSError as err:
            raise CompareError(f"'{out}' cannot be written ({err.strerror}).") from err
    return found


def _drawn(found: History, folder: Path) -> list[str]:
    """Draw each kernel's groups; the names of the files in `folder`."""
    set_style()
    names, runs = [], found.rows["number"].nunique()
    for kernel, rows in found.rows.groupby("kernel", observed=True):
        names.append(f"{kernel}.svg")
        picture = draw_timelines(rows, found.changes[found.changes["kernel"] == kernel])
        save(picture, folder / names[-1], f"{kernel} over {runs} runs", CAPTION)
    return names
