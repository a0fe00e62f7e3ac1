"""What the CUDA backend times: launches alone, replayed as a graph, or calls of a library."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...core.errors import DeviceError, DeviceLostError
from ..base import DeviceInfo, Sample, flush_bytes
from .runtime import Translate

# One thread that keeps the stream busy while the host queues what is to be timed.
SPIN_SOURCE = """
extern "C" __global__ void spin(long long cycles)
{
    const long long start = clock64();
    while (clock64() - start < cycles)
        ;
}
"""
# Tried in turn while the host is too slow to queue a launch behind the spin.
SPINS_US = (50, 200, 1000, 10000)


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Steps:
    """How a sample is taken: `before` untimed, then `timed` between two events, `times` over.

    What is timed holds so many `launches`.
    """

    before: Callable[[], None]
    timed: Callable[[], None]
    times: int
    launches: int


@dataclass(frozen=True)
class Queued:
    """A sample on its way; `late` when the device had to wait for the host."""

    elapsed_ms: Callable[[Any, Any], float]
    steps: Steps
    events: list[tuple[Any, Any]]
    late: bool

    def seconds(self) -> float:
        """Per launch, once the device is through."""
        total_ms = sum(float(self.elapsed_ms(start, stop)) for start, stop in self.events)
        return total_ms * 1e-3 / (self.steps.times * self.steps.launches)


class EventTimer:
    """Times what is queued on one stream, by events and behind a kernel that spins meanwhile."""

    def __init__(
        self,
        cupy: Any,
        spin: Any,
        stream: Any,
        info: DeviceInfo,
        translated: Callable[[], Translate],
    ) -> None:
        """`spin` is the kernel of SPIN_SOURCE; `translated` gives what translates errors."""
        self._cupy, self._spin, self.stream, self._info = cupy, spin, stream, info
        self.translated = translated
        self._events: list[tuple[Any, Any]] = []
        self._filler: Any = None

    def time(self, steps: Steps) -> float:
        """Seconds per launch, by events around what is timed.

        The device first spins, so that events and launches are all queued behind the spin and
        follow each other without waiting for the host. Where the host was too slow all the same,
        the sample is taken again behind a longer spin.
        """
        with self.translated(), self.stream:
            for spin_us in SPINS_US:
                self.spin(spin_us)
                queued = self._queue(steps, 0)
                self.stream.synchronize()
                if not queued.late:
                    return queued.seconds()
            log.warning("the host is too slow: a sample may hold %d us of its time", spin_us)
            return queued.seconds()

    def time_all(self, samples: Sequence[Sample]) -> list[float | DeviceError]:
        """Seconds per launch of each, or what went wrong with it, all behind one spin.

        While the device takes one sample, the host queues the next. Raises DeviceLostError.
        """
        taken: list[float | DeviceError] = [math.nan] * len(samples)
        plans: dict[int, Steps] = {}
        for i, sample in enumerate(samples):
            try:
                plans[i] = steps_of(sample)
            except DeviceLostError:
                raise
            except DeviceError as err:
                taken[i] = err
        queued: dict[int, Queued] = {}
        with self.translated(), self.stream:
            self.spin(SPINS_US[0])
            place = 0
            for i, steps in plans.items():
                try:
                    with self.translated():
                        queued[i] = self._queue(steps, place)
                except DeviceLostError:
                    raise
                except DeviceError as err:
                    taken[i] = err
                place += steps.times
            self.stream.synchronize()
            for i, on_its_way in queued.items():
                late = on_its_way.late
                taken[i] = self.time(plans[i]) if late else on_its_way.seconds()
        return taken

    def spin(self, microseconds: int) -> None:
        """Queue a kernel that takes about so long at the highest clock."""
        self._spin((1,), (1,), (np.int64(self._info.core_clock_mhz * microseconds),))

    def _queue(self, steps: Steps, place: int) -> Queued:
        """Queue a sample that uses the pairs of events from `place` on."""
        events = self.event_pairs(place + steps.times)[place:]
        late = False
        for start, stop in events:
            steps.before()
            start.record(self.stream)
            steps.timed()
            stop.record(self.stream)
            late = late or start.done
        return Queued(self._cupy.cuda.get_elapsed_time, steps, events, late)

    def event_pairs(self, n: int) -> list[tuple[Any, Any]]:
        """The first `n` of its pairs of events, each for the begin and the end of something."""
        event = self._cupy.cuda.Event
        while len(self._events) < n:
            self._events.append((event(), event()))
        return self._events[:n]

    def flush(self) -> None:
        """Queue writes that leave nothing else in the L2 cache."""
        if self._filler is None:
            words = flush_bytes(self._info) // 4
            self._filler = self._cupy.empty(words, dtype=np.uint32)
        self._filler.data.memset_async(0x5A, self._filler.nbytes, self.stream)


class CudaBound:
    """A launch on one stream; several launches are captured in a graph once and replayed."""

    def __init__(self, timer: EventTimer, enqueue: Callable[[], None]) -> None:
        self._timer, self.enqueue = timer, enqueue
        self._graphs: dict[int, Callable[[], None]] = {}

    def run(self) -> None:
        """Launch once and wait. Raises LaunchFailedError or DeviceLostError."""
        with self._timer.translated(), self._timer.stream:
            self.enqueue()
            self._timer.stream.synchronize()

    def sample(self, launches: int) -> float:
        """Seconds per launch between two events around the launches (a graph when several)."""
        return self._timer.time(self.steps(launches, flushed=False))

    def sample_flushed(self, launches: int) -> float:
        """Mean seconds of the launches, the L2 cache filled with other data before each."""
        return self._timer.time(self.steps(launches, flushed=True))

    def steps(self, launches: int, flushed: bool) -> Steps:
        """How a sample is taken.

        Several warm launches are short ones, whose data the L2 cache may hold: an untimed launch
        before them makes sure that it does.
        """
        if flushed:
            return Steps(self._timer.flush, self.enqueue, launches, 1)
        if launches == 1:
            return Steps(lambda: None, self.enqueue, 1, 1)
        return Steps(self.enqueue, self._graph(launches), 1, launches)

    def _graph(self, launches: int) -> Callable[[], None]:
        """Replays `launches` launches; captured at the first call."""
        if launches not in self._graphs:
            with self._timer.translated(), self._timer.stream as stream:
                stream.begin_capture()
                for _ in range(launches):
                    self.enqueue()
                graph = stream.end_capture()
                graph.launch(stream)  # the first replay uploads the graph
                stream.synchronize()
                self._graphs[launches] = partial(graph.launch, stream)
        return self._graphs[launches]


class CudaLibraryBound(CudaBound):
    """Calls of a library, which CuPy does not let a graph capture: they are queued one by one.

    Where the host is slower than the device, the sample is taken behind a longer spin.
    """

    def steps(self, launches: int, flushed: bool) -> Steps:
        """As of launches, but for the graph."""
        if flushed or launches == 1:
            return super().steps(launches, flushed)

        def calls() -> None:
            for _ in range(launches):
                self.enqueue()

        return Steps(self.enqueue, calls, 1, launches)


def steps_of(sample: Sample) -> Steps:
    """How `sample`, of a bound of this backend, is taken."""
    assert isinstance(sample.bound, CudaBound)
    return sample.bound.steps(sample.launches, sample.flushed)
