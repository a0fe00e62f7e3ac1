"""Measure the memcpy baseline: the copy of the device's runtime, timed like a cell."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from ..core.errors import DeviceLostError, TypedError
from ..core.space import Condition, Problem
from ..devices.base import PreparedLaunch, Sample, TimedInterval
from .events import CopySample, Overhead, Preparing
from .overhead import overhead_of_copy
from .sample_length import launches_of_group
from .verify import CellSteps

log = logging.getLogger(__name__)


@dataclass
class Baseline:
    """Copy of one problem under one measurement condition.

    The first call of `time` chooses the number of copies in a sample and measures the overhead, as
    for a group of cells.

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
        interval = self.copy.interval(self.met)
        has_overhead = interval == TimedInterval.ROW
        # The first one warms up.
        fastest_s = min(alone.take() for _ in range(2))
        factor = self.steps.sampling.job.measure.launches_factor
        sample = replace(
            alone, launches=launches_of_group(fastest_s, self.met, has_overhead, factor)
        )
        if sample.launches == 1:
            return alone
        try:
            sample.take()
            if has_overhead:
                self.overhead = overhead_of_copy(sample)
        except DeviceLostError:
            raise
        except TypedError as err:
            log.warning("the memcpy baseline is timed alone: %s", err)
            return alone
        return sample
