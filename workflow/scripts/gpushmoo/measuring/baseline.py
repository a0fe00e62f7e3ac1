"""Measure the memcpy baseline: the copy of the device's runtime, timed like a cell.

A cell's launches in a row are one graph. The driver of a GPU may copy some sizes slower in a graph
than in a stream, so the baseline is timed in the way that is faster.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..core.backends import BACKENDS
from ..core.errors import DeviceLostError, TypedError
from ..core.space import USUAL, Condition, Problem
from ..devices.base import PreparedLaunch, Sample, TimedInterval
from .events import CopySample, Overhead, Preparing
from .overhead import overhead_of_copy
from .sample_length import launches_of_group
from .verify import CellSteps

log = logging.getLogger(__name__)

# The timing mode of launches in a row that are no graph.
_ONE_BY_ONE = "stream"


@dataclass
class Baseline:
    """Copy of one problem under one measurement condition.

    The first call of `time` chooses the number of copies in a sample and whether they are a graph,
    and measures the overhead, as for a group of cells.

    Attributes
    ----------
    steps
        Steps on the open device.
    copy
        The copy to time.
    problem
        Size of the problem whose bytes are copied.
    met
        Measurement condition.
    sample
        The samples to take, or None before the first call.
    overhead
        Overhead of a sample, or None if it is not known.
    """

    steps: CellSteps
    copy: PreparedLaunch
    problem: Problem
    met: Condition
    sample: Sample | None = None
    overhead: Overhead | None = None

    def move(self, copy: PreparedLaunch) -> None:
        """Continue with `copy`, the same copy between buffers at other addresses."""
        self.copy = copy
        if self.sample is not None:
            self.sample = replace(self.sample, bound=copy)

    def time(self) -> CopySample:
        """Take a sample of the copy. Errors of the copy are raised."""
        self.steps.emit(Preparing(self.problem))
        if self.sample is None:
            self.sample = self._chosen()
        at_s, seconds = self.steps.announced([], self.sample.take)
        launches = self.sample.launches
        if self.overhead is not None:
            seconds -= self.overhead.seconds / launches
        return CopySample(seconds, at_s, launches, self.overhead)

    def _chosen(self) -> Sample:
        """Return the sample to take. If several copies in a row fail, a sample has one copy."""
        alone = Sample(self.copy, 1, self.met)
        has_overhead = self.copy.interval(self.met) == TimedInterval.ROW
        # The first one warms up.
        fastest_s = min(alone.take() for _ in range(2))
        factor = self.steps.sampling.job.measure.launches_factor
        launches = launches_of_group(fastest_s, self.met, has_overhead, factor)
        if launches == 1:
            return alone
        row = self._fastest([replace(alone, launches=launches, met=met) for met in self._ways()])
        if row is None:
            return alone
        try:
            if has_overhead:
                self.overhead = overhead_of_copy(row)
        except DeviceLostError:
            raise
        except TypedError as err:
            log.warning("the memcpy baseline is timed alone: %s", err)
            return alone
        return row

    def _ways(self) -> list[Condition]:
        """Return the conditions under which copies in a row can be timed."""
        backend = BACKENDS.get(self.steps.device.info.backend)
        if self.met == USUAL and backend is not None and _ONE_BY_ONE in backend.timing_modes:
            return [self.met, self.met._replace(timing_mode=_ONE_BY_ONE)]
        return [self.met]

    def _fastest(self, samples: Sequence[Sample]) -> Sample | None:
        """Return the sample with the shortest copies, or None if all of them fail."""
        taken = list[tuple[float, Sample]]()
        for sample in samples:
            try:
                # The first one warms up.
                taken.append((min(sample.take() for _ in range(2)), sample))
            except DeviceLostError:
                raise
            except TypedError as err:
                log.warning(
                    "the memcpy baseline is not timed in mode %s: %s", sample.met.timing_mode, err
                )
        return min(taken, key=lambda pair: pair[0], default=(0.0, None))[1]
