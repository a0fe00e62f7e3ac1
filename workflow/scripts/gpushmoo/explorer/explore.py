"""Writes the page: for a rule, from Python and from the shell."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.run_plan import PLAN_FILE
from ..storage.store import BadParquetError
from ..storage.wholefile import write_summed
from .errors import ExplorerError
from .page import page
from .payload import StageFiles, payload
from .sources import Source, opened

PAGE_NAME = "explorer.html"


def explore(
    run: str | os.PathLike[str],
    second: str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
) -> Path:
    """Write one page on which the cells of a run can be explored in a browser; the page's path.

    `run` is a run's folder, also of one that still goes on (then its finished shards are shown), a
    data set or a folder of recorded shards; `second` is another, shown beside it. The page needs no
    network and no server. By default it is ``explorer.html`` in the run's folder, or in the working
    directory for recorded shards. Raises ExplorerError, a ValueError, with one sentence.
    """
    places = [Path(place).expanduser() for place in (run, second) if place is not None]
    with ExitStack() as stack:
        sources = _told_apart([stack.enter_context(opened(place)) for place in places])
        target = _target(places[0]) if out is None else Path(out).expanduser()
        if target.suffix != ".html":
            raise ExplorerError(f"'{target}' must end in .html.")
        try:
            write_page(sources, target)
        except BadParquetError as err:
            raise ExplorerError(str(err)) from err
        except OSError as err:
            raise ExplorerError(f"'{target}' cannot be written ({err.strerror}).") from err
    return target


def _told_apart(sources: list[Source]) -> list[Source]:
    """Two data sets of one name get numbers."""
    if len({source.name for source in sources}) == len(sources):
        return sources
    return [replace(s, name=f"{s.name} ({n})") for n, s in enumerate(sources, start=1)]


def _target(place: Path) -> Path:
    """A run's page lies in its folder; into folders that others recorded nothing is written."""
    return (place if (place / PLAN_FILE).is_file() else Path()) / PAGE_NAME


def write_page(sources: Sequence[Source], out: Path) -> None:
    """Write the page of one data set, or two, to `out`, with a sum of itself at the end.

    Raises BadParquetError for what is damaged, OSError where nothing can be written.
    """
    shown = [
        payload(source.dataset, source.name, source.stages, source.progress, prefix)
        for source, prefix in zip(sources, "ab", strict=False)
    ]
    write_summed(out, page(shown, " and ".join(source.name for source in sources)))


def write_run_page(
    dataset: Path,
    device: Sequence[Path],
    history: Sequence[Path],
    run: str,
    out: Path,
) -> None:
    """Write the page of a finished run's data set, its model and its history, where they are."""
    earlier = history[0].parent if history else None
    stages = StageFiles(next(iter(device), None), earlier)
    write_page([Source(dataset, run, stages)], out)


def explore_compared(spec: Mapping[str, Any], out: Path) -> None:
    """Write the page of the first runs of both sides of a comparison."""
    explore(spec["a"][0], spec["b"][0], out=out)
