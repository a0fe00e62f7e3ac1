"""Many runs as one history with pictures: the function of that name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...comparing.run_history import History, history_of, read_runs
from ...comparing.runs import Place
from ...core.errors import CompareError
from ...core.names import several
from ...figures.style import save, set_style
from ...storage.dataset import runs_in
from ...storage.room import output_folder
from .figure import CAPTION, draw_timelines


def history(
    runs: Place | Sequence[Place],
    *,
    out: Place | None = None,
) -> History:
    """Order the bests of many runs by time.

    Parameters
    ----------
    runs : list of paths
        Runs' folders, data sets, folders of shards, or folders of runs (the finished ones count).
    out : path
        Folder for the table, ``summary.md`` and a picture for each kernel.

    Returns
    -------
    History
        With `rows` (a data frame), `changes` from the first to the last run, and `markdown`.

    Raises
    ------
    CompareError
        A ValueError of one sentence.
    """
    places = [Path(named).expanduser() for named in several(runs)]
    # A path that is not a folder is refused when it is read.
    found = history_of(
        read_runs([run for p in places for run in (runs_in(p) if p.is_dir() else [p])])
    )
    if out is not None:
        with output_folder(Path(out).expanduser(), CompareError) as folder:
            found.save(folder, _drawn(found, folder))
    return found


def _drawn(found: History, folder: Path) -> list[str]:
    """Draw each kernel's groups; the names of the files in `folder`."""
    set_style()
    names = []
    runs = found.rows["number"].nunique()
    for kernel, rows in found.rows.groupby("kernel", observed=True):
        names.append(f"{kernel}.svg")
        save(draw_timelines(rows), folder / names[-1], f"{kernel} over {runs} runs", CAPTION)
    return names
