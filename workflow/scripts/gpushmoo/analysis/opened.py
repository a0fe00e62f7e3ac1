"""From what a user names to a data set: a finished run, one that still goes on, a recorded one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from .. import __name__ as library
from ..core.run_plan import PLAN_FILE, RunPlan
from ..storage.dataset import PROVENANCE, finished_dataset
from ..storage.packed import unpacked
from ..storage.store import BadParquetError, open_shard
from ..storage.wholefile import DamagedFileError, read_json
from .aggregate import AggregateError, aggregate

CELLS = "cells"


class OpenedError(ValueError):
    """What was named holds no data set; one sentence."""


@dataclass(frozen=True)
class OpenedSet:
    """A data set and its run's name; `plan`, and `shards` so far, of a run that still goes on."""

    dataset: Path
    name: str
    finished: bool = False
    plan: RunPlan | None = None
    shards: int = 0


@contextmanager
def opened(place: Path) -> Iterator[OpenedSet]:
    """The data set that `place` is, or that is made of the shards in it for as long as needed.

    `place` is a run's folder (``results/NAME``), the folder of its data set, or one of shards. Of a
    run that still goes on the finished shards are taken. Raises OpenedError, one sentence.
    """
    named, name = place, place.resolve().name
    try:
        place = unpacked(place)
    except (BadParquetError, OSError) as err:
        raise OpenedError(f"'{named}' cannot be unpacked: {err}") from err
    if not place.exists():
        raise OpenedError(f"'{named}' does not exist; name a run's folder, such as results/local.")
    if not place.is_dir():
        raise OpenedError(f"'{named}' is a file; name the folder of a run or of a data set.")
    if (place / PROVENANCE).is_file():
        yield OpenedSet(place, name)
        return
    rendered = finished_dataset(place)
    if rendered is not None and not (place / PLAN_FILE).is_file():
        # Of a recorded data set, whose shards lie elsewhere.
        yield OpenedSet(rendered, name, finished=True)
        return
    shards, plan = _shards(place)
    partial = plan is not None and len(shards) < count_planned(plan)
    if not partial and (finished := _finished(place)) is not None:
        yield OpenedSet(finished, name, finished=True)
        return
    with TemporaryDirectory(prefix=f"{library}-") as folder:
        dataset = Path(folder) / "dataset"
        try:
            aggregate(shards, dataset, plan=plan)
        except AggregateError as err:
            raise OpenedError(str(err)) from err
        yield OpenedSet(dataset, name, plan=plan if partial else None, shards=len(shards))


def _shards(place: Path) -> tuple[list[Path], RunPlan | None]:
    """The finished shards in `place`, and the plan of the run, if it is a run's folder."""
    plan_file = place / PLAN_FILE
    if not plan_file.is_file():
        inside = ((path, path.relative_to(place).parts) for path in place.rglob("*.parquet"))
        found = sorted(p for p, parts in inside if not any(x[0] in "._" for x in parts))
        if not found:
            raise OpenedError(
                f"'{place}' holds neither a data set nor shards; name a run's folder, such as "
                "results/local, or that of a recorded data set."
            )
        return found, None
    try:
        plan = RunPlan.from_plain(read_json(plan_file))
    except (DamagedFileError, KeyError, TypeError, AttributeError) as err:
        raise OpenedError(f"'{plan_file}' cannot be read ({err}); start the run again.") from err
    files = [place / CELLS / path for path in _planned_paths(plan)]
    shards = [path for path in files if path.is_file() and _is_of(plan, path)]
    if not shards:
        raise OpenedError(f"'{place}' has no finished shard yet; try again when one is there.")
    return shards, plan


def _is_of(plan: RunPlan, path: Path) -> bool:
    """Whether a shard is what the plan asks for; an earlier configuration may have left another."""
    try:
        return bool(open_shard(path).metadata.get("params") == plan.shard_params(path))
    except BadParquetError:
        return False


def _planned_paths(plan: RunPlan) -> Iterator[str]:
    for sweep, dtypes in plan.sweeps.items():
        for dtype, planned in dtypes.items():
            yield from (f"{sweep}/{dtype}/{file}" for file, _ in planned.shards())


def count_planned(plan: RunPlan) -> int:
    """How many shards a run is to have."""
    return sum(1 for _ in _planned_paths(plan))


def _finished(place: Path) -> Path | None:
    """The data set of a finished run, if it is newer than the shards."""
    found = finished_dataset(place)
    if found is None:
        return None
    shards = (path.stat().st_mtime for path in (place / CELLS).rglob("*.parquet"))
    return found if max(shards, default=-math.inf) <= (found / PROVENANCE).stat().st_mtime else None
