"""The plan of a run: the job of each of its shards, and the samples of a cell in each repeat.

`aggregate` compares each shard with its job in the plan, because the shard may have been measured
for another configuration.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from .schema import Status
from .shard_job import ShardJob
from .space import shard_name

# File in the run's folder, written before the run's first job starts.
PLAN_FILE = "plan.json"
# Configuration in a saved sweep's folder that makes a report of it.
SAVED = "report.yaml"
_NAME = re.compile(r"(\d+)-of-(\d+)(?:\.repeat-(\d+))?")


@dataclass(frozen=True)
class SweepPlan:
    """The first `job` of one sweep and type, from which its other parts and repeats follow.

    `rows` is the approximate number of rows in a repeat of all parts, if it is not the number of
    combinations.
    """

    job: ShardJob
    rows: int | None = None

    @property
    def parts(self) -> int:
        """The number of parts of the sweep."""
        return self.job.shard[1]

    @property
    def planned_cells(self) -> float:
        """Approximate number of rows of each part in a repeat."""
        rows = self.rows or self.job.space.planned_cells
        return rows / self.parts

    def shards(self) -> Iterator[tuple[str, int]]:
        """Yield each shard's file and its repeat, in the order of measurement."""
        for repeat in range(1, self.job.measure.repeats + 1):
            for index in range(self.parts):
                yield f"{shard_name(index, self.parts, repeat)}.parquet", repeat


@dataclass(frozen=True)
class RunPlan:
    """Plan of every sweep, by its name and type."""

    sweeps: Mapping[str, Mapping[str, SweepPlan]]

    def job(self, path: Path) -> ShardJob | None:
        """Return the job of ``…/<sweep>/<dtype>/<shard>.parquet``; None if it is not planned."""
        found = _NAME.fullmatch(path.stem)
        plan = self.sweeps.get(path.parts[-3], {}).get(path.parts[-2])
        if found is None or plan is None:
            return None
        index, count, repeat = (int(n or 1) for n in found.groups())
        # So nothing passes whose name only looks like that of a shard.
        planned = index < plan.parts == count and repeat <= plan.job.measure.repeats
        if not planned or path.stem != shard_name(index, count, repeat):
            return None
        return plan.job.part(index, repeat)

    def as_plain(self) -> dict[str, Any]:
        """Return dictionaries and lists, as `from_plain` reads them."""
        values: dict[str, Any] = plain(
            {
                name: {
                    dtype: {"job": plan.job.plain, "rows": plan.rows}
                    for dtype, plan in dtypes.items()
                }
                for name, dtypes in self.sweeps.items()
            }
        )
        return values

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> RunPlan:
        """Return the plan from the values of `as_plain`; raise KeyError or TypeError for others."""
        return cls(
            {
                name: {
                    dtype: SweepPlan(ShardJob.of_plain(plan["job"]), plan["rows"])
                    for dtype, plan in dtypes.items()
                }
                for name, dtypes in values.items()
            }
        )


def plain(values: Any) -> Any:
    """Return the values as JSON gives them back: lists for tuples, texts for keys."""
    return json.loads(json.dumps(values))


# Fewest samples of a cell in one repeat for its interval to count: fewer have no 95 % interval.
# With four, a cell that was fast four times in a row by chance stopped there and won.
MIN_SAMPLES = 6
# With at least this number of repeats, the repeats themselves show the spread of a cell's times,
# and MIN_SAMPLES_OF_MANY samples in each suffice.
TELLING_REPEATS, MIN_SAMPLES_OF_MANY = 3, 3
# If the threads of a measuring process waited for a core for a larger share of their time, its
# cells are ranked by processor time instead of elapsed time.
LACKING = 0.1


def least_samples(min_samples: int, repeats: int) -> int:
    """Return the fewest samples of a cell in each of `repeats`, `min_samples` in all."""
    fewest = MIN_SAMPLES_OF_MANY if repeats >= TELLING_REPEATS else MIN_SAMPLES
    return max(fewest, math.ceil(min_samples / repeats))


def fully_sampled(table: pa.Table, measure: Mapping[str, Any]) -> pa.ChunkedArray:
    """Return a mask of cells that are ``ok`` and were not cut short by a search for being slow."""
    # To import it takes a tenth of the start of a measuring process, which does not need it.
    import pyarrow.compute as pc

    least = min(MIN_SAMPLES, least_samples(measure["min_samples"], measure["repeats"]))
    ok = pc.equal(table.column("status"), Status.OK)
    taken = pc.fill_null(pc.list_value_length(table.column("samples_s")), 0)
    return pc.and_(ok, pc.greater_equal(taken, least))
