"""Many runs as one history with pictures: the function of that name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..comparing.errors import CompareError
from ..comparing.history import DELTA, History, history_of, read_runs
from ..figures.style import save, set_style
from ..figures.timelines import draw_timelines

Place = str | os.PathLike[str]


def history(
    runs: Sequence[Place],
    *,
    otava: str | None = None,
    delta: float = DELTA,
    out: Place | None = None,
) -> History:
    """The bests of `runs` (results' folders, data sets, folders of shards) in the order of time.

    Change points are found by the program `otava` (Apache Otava, in an environment of its own), by
    default that on the PATH; changes under `delta`, a share, are not told. Into the folder `out` go
    ``history.parquet``, ``change_points.parquet``, ``summary.md`` and a picture for each kernel.
    Raises CompareError, a ValueError, with one sentence.
    """
    found = history_of(read_runs(runs), otava, delta)
    if out is not None:
        try:
            found.save(out, _drawn(found, Path(out).expanduser()))
        except OSError as err:
            raise CompareError(f"'{out}' cannot be written ({err.strerror}).") from err
    return found


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
            "Bandwidth of each group's best with its 95 % interval, and below it of the runtime's "
            "own copy, over runs in the order of time. Scales differ. Dashed: from here on "
            "the mean is another.",
        )
        names.append(name)
    return names
