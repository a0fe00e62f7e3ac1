"""Times launches of each kind and calls of a library by CUDA events."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...core.errors import LaunchRefusedError, TypedError
from ...core.space import USUAL, Condition
from ..base import DeviceInfo, Sample, each_or_error, flush_bytes
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


def _nothing() -> None:
    """What is done before launches that need nothing done before."""


@dataclass(frozen=True)
class Steps:
    """How a sample is taken: `before` untimed, then `timed` between two events, `times` over.

    What is timed holds so many `launches`. `isolated`: it finds the device idle, that is, what is
    done `before` was waited for.
    """

    before: Callable[[], None]
    timed: Callable[[], None]
    times: int
    launches: int
    isolated: bool = False


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
        the sample is taken again behind a longer spin. The one thread that spins leaves the device
        as idle as an isolated launch shall find it, and the host's time of launching out of that.
        """
        if steps.isolated and steps.times > 1:
            once = replace(steps, times=1)
            return math.fsum(self.time(once) for _ in range(steps.times)) / steps.times
        with self.translated(), self.stream:
            for spin_us in SPINS_US:
                if steps.isolated:
                    steps.before()
                    self.stream.synchronize()
                self.spin(spin_us)
                queued = self._queue(steps, 0)
                self.stream.synchronize()
                if not queued.late:
                    return queued.seconds()
            log.warning("the host is too slow: a sample may hold %d us of its time", spin_us)
            return queued.seconds()

    def time_all(self, samples: Sequence[Sample]) -> list[float | TypedError]:
        """Seconds per launch or the error of each, all behind one spin.

        While the device takes one sample, the host queues the next. None of them may be isolated.
        Raises DeviceLostError.
        """
        plans = each_or_error(steps_of, samples)
        place = 0

        def queue(plan: Steps | TypedError) -> Queued:
            nonlocal place
            if isinstance(plan, TypedError):
                raise plan
            with self.translated():
                queued = self._queue(plan, place)
            place += plan.times
            return queued

        with self.translated(), self.stream:
            self.spin(SPINS_US[0])
            found = each_or_error(queue, plans)
            self.stream.synchronize()
            return [q if isinstance(q, TypedError) else self._seconds(q) for q in found]

    def _seconds(self, queued: Queued) -> float:
        """Per launch; a late sample is taken again."""
        return self.time(queued.steps) if queued.late else queued.seconds()

    def spin(self, microseconds: int) -> None:
        """Queue a kernel that takes about so long at the highest clock."""
        self._spin((1,), (1,), (np.int64(self._info.core_clock_mhz * microseconds),))

    def _queue(self, steps: Steps, place: int) -> Queued:
        """Queue a sample that uses the pairs of events from `place` on."""
        events = self.event_pairs(place + steps.times)[place:]
        late = False
        for start, stop in events:
            if not steps.isolated:
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
    """A launch on one stream; where a graph holds several, it is captured once and replayed."""

    def __init__(self, timer: EventTimer, enqueue: Callable[[], None]) -> None:
        self._timer, self.enqueue = timer, enqueue
        self._graphs: dict[int, Callable[[], None]] = {}

    def run(self) -> None:
        """Launch once and wait. Raises LaunchFailedError or DeviceLostError."""
        with self._timer.translated(), self._timer.stream:
            self.enqueue()
            self._timer.stream.synchronize()

    def sample(self, launches: int, met: Condition = USUAL) -> float:
        """Seconds per launch, by pairs of events: one around all, or one around each (`steps`)."""
        return self._timer.time(self.steps(launches, met))

    def steps(self, launches: int, met: Condition) -> Steps:
        """How a sample is taken. Raises LaunchRefusedError where there is no such graph.

        What is flushed, or isolated, is timed launch by launch. Several warm launches are short
        ones, or follow each other: an untimed launch before them has the L2 cache hold what they
        leave in it.
        """
        kind = met.launch_kind
        before = self.enqueue if launches > 1 else _nothing
        if met.flushed:
            timed = self._graph(1) if kind == "graph" else self.enqueue
            return Steps(self._timer.flush, timed, launches, 1, kind == "isolated")
        if kind == "isolated":
            return Steps(before, self.enqueue, launches, 1, isolated=True)
        if kind == "graph" or (kind == "back_to_back" and launches > 1):
            return Steps(before, self._graph(launches), 1, launches)
        return Steps(before, self._one_by_one(launches), 1, launches)

    def _one_by_one(self, launches: int) -> Callable[[], None]:
        """Queues so many launches by themselves."""

        def queue() -> None:
            for _ in range(launches):
                self.enqueue()

        return queue

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

    def steps(self, launches: int, met: Condition) -> Steps:
        """Like launches, but a graph is refused and ``back_to_back`` calls share a stream."""
        if met.launch_kind == "graph":
            raise LaunchRefusedError("CuPy does not let a graph hold calls of a library.")
        kind = "stream" if met.launch_kind == "back_to_back" else met.launch_kind
        return super().steps(launches, met._replace(launch_kind=kind))


def steps_of(sample: Sample) -> Steps:
    """How `sample`, of a bound of this backend, is taken."""
    assert isinstance(sample.bound, CudaBound)
    return sample.bound.steps(sample.launches, sample.met)
