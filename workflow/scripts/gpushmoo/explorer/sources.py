"""From what a user names to what the page shows of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..analysis.opened import OpenedError, OpenedSet, count_planned
from ..analysis.opened import opened as opened_data_set
from ..core.space import TYPICAL, asks_the_device, count_cells, expand_axis, space_of
from .errors import ExplorerError
from .payload import StageFiles, Unfinished


@dataclass(frozen=True)
class Source:
    """A data set to be shown, how it is called, and how much of its run is in (None: all)."""

    dataset: Path
    name: str
    stages: StageFiles
    progress: Unfinished | None = None


@contextmanager
def opened(place: Path) -> Iterator[Source]:
    """What `place` names, as `analysis.opened` opens it. Raises ExplorerError, one sentence."""
    try:
        with opened_data_set(place) as found:
            stages = _stages(place) if found.finished else StageFiles()
            yield Source(found.dataset, found.name, stages, _progress(found))
    except OpenedError as err:
        raise ExplorerError(str(err)) from err


def _progress(found: OpenedSet) -> Unfinished | None:
    """How much is in: cells count once, whatever the repeats, as the page's cells do."""
    plan = found.plan
    if plan is None or not found.partial:
        return None
    specs = [
        (planned.shard_params(0, 1) | {"shard": [0, 1]})
        for dtypes in plan.sweeps.values()
        for planned in dtypes.values()
    ]
    about = any(asks_the_device(spec) for params in specs for spec in params["axes"].values())
    cells = sum(map(_cells, specs))
    return Unfinished(len(found.shards), count_planned(plan), cells, about)


def _cells(params: dict[str, Any]) -> int:
    space = space_of(params)
    axes = {name: expand_axis(spec, TYPICAL) for name, spec in space.axes.items()}
    met = len(space.cache_states) * len(space.launch_kinds)
    return count_cells(axes, len(set(space.problems)), len(space.variants), met)


def _stages(place: Path) -> StageFiles:
    """What a finished run's model of the device predicts, and its history."""
    files = {"device": place / "model" / "device.parquet", "history": place / "history"}
    return StageFiles(**{name: file for name, file in files.items() if file.exists()})
