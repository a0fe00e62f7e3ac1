"""From what a user names to a data set: a finished run, one that still goes on, a recorded one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .. import __name__ as library
from ..analysis.aggregate import AggregateError, aggregate
from ..core.run_plan import PLAN_FILE, RunPlan
from ..core.space import TYPICAL, asks_the_device, count_cells, expand_axis, shard_name, space_of
from ..storage.dataset_seal import SUMS
from ..storage.store import BadParquetError, open_shard
from ..storage.wholefile import DamagedFileError, read_json
from .errors import ExplorerError
from .payload import ModelFiles, Unfinished

CELLS = "cells"


@dataclass(frozen=True)
class Source:
    """A data set to be shown, how it is called, and how much of its run is in (None: all)."""

    dataset: Path
    name: str
    model: ModelFiles
    progress: Unfinished | None = None


@contextmanager
def opened(place: Path) -> Iterator[Source]:
    """The data set that `place` is, or that is made of the shards in it for as long as needed.

    `place` is a run's folder (``results/NAME``), the folder of its data set, or one of shards. Of a
    run that still goes on the finished shards are taken. Raises ExplorerError, one sentence.
    """
    if not place.exists():
        raise ExplorerError(
            f"'{place}' does not exist; name a run's folder, such as results/local."
        )
    if not place.is_dir():
        raise ExplorerError(f"'{place}' is a file; name the folder of a run or of a data set.")
    name = place.resolve().name
    if (place / SUMS).is_file():
        yield Source(place, name, ModelFiles())
        return
    shards, plan = _shards(place)
    whole = plan is None or len(shards) == _planned_shards(plan)
    finished = _finished(place) if whole else None
    if finished is not None:
        yield Source(finished, name, _models(place))
        return
    with TemporaryDirectory(prefix=f"{library}-") as folder:
        dataset = Path(folder) / "dataset"
        try:
            aggregate(shards, dataset, plan=plan)
        except AggregateError as err:
            raise ExplorerError(str(err)) from err
        progress = None if whole or plan is None else _progress(plan, shards)
        yield Source(dataset, name, ModelFiles(), progress)


def _shards(place: Path) -> tuple[list[Path], RunPlan | None]:
    """The finished shards in `place`, and the plan of the run, if it is a run's folder."""
    plan_file = place / PLAN_FILE
    if not plan_file.is_file():
        found = sorted(p for p in place.rglob("*.parquet") if not _hidden(p, place))
        if not found:
            raise ExplorerError(
                f"'{place}' holds neither a data set nor shards; name a run's folder, such as "
                "results/local, or that of a recorded data set."
            )
        return found, None
    try:
        plan = RunPlan.from_plain(read_json(plan_file))
    except (DamagedFileError, KeyError, TypeError, AttributeError) as err:
        raise ExplorerError(f"'{plan_file}' cannot be read ({err}); start the run again.") from err
    files = [place / CELLS / path for path in _planned_paths(plan)]
    shards = [path for path in files if path.is_file() and _is_of(plan, path)]
    if not shards:
        raise ExplorerError(f"'{place}' has no finished shard yet; try again when one is there.")
    return shards, plan


def _hidden(path: Path, place: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(place).parts)


def _is_of(plan: RunPlan, path: Path) -> bool:
    """Whether a shard is what the plan asks for; an earlier configuration may have left another."""
    try:
        return bool(open_shard(path).metadata.get("params") == plan.shard_params(path))
    except BadParquetError:
        return False


def _planned_paths(plan: RunPlan) -> Iterator[str]:
    for sweep, dtypes in plan.sweeps.items():
        for dtype, planned in dtypes.items():
            for repeat in range(1, planned.params["measure"]["repeats"] + 1):
                for index in range(planned.parts):
                    yield f"{sweep}/{dtype}/{shard_name(index, planned.parts, repeat)}.parquet"


def _planned_shards(plan: RunPlan) -> int:
    return sum(1 for _ in _planned_paths(plan))


def _progress(plan: RunPlan, shards: list[Path]) -> Unfinished:
    """How much is in: cells count once, whatever the repeats, as the page's cells do."""
    specs = [
        (planned.shard_params(0, 1) | {"shard": [0, 1]})
        for dtypes in plan.sweeps.values()
        for planned in dtypes.values()
    ]
    about = any(asks_the_device(spec) for params in specs for spec in params["axes"].values())
    cells = sum(map(_cells, specs))
    return Unfinished(len(shards), _planned_shards(plan), cells, about)


def _cells(params: dict[str, Any]) -> int:
    space = space_of(params)
    axes = {name: expand_axis(spec, TYPICAL) for name, spec in space.axes.items()}
    met = len(space.cache_states) * len(space.launch_kinds)
    return count_cells(axes, len(set(space.problems)), len(space.variants), met)


def _finished(place: Path) -> Path | None:
    """The data set of a finished run, if it is newer than the shards."""
    made = [path / SUMS for path in (place / "dataset", place / "dataset" / "data")]
    found = next((path for path in made if path.is_file()), None)
    if found is None:
        return None
    shards = (path.stat().st_mtime for path in (place / CELLS).rglob("*.parquet"))
    return found.parent if max(shards, default=-math.inf) <= found.stat().st_mtime else None


def _models(place: Path) -> ModelFiles:
    """What a finished run's models predict."""
    files = {n: place / "model" / f"{n}.parquet" for n in ("predictions", "shapes", "device")}
    return ModelFiles(**{name: file for name, file in files.items() if file.is_file()})
