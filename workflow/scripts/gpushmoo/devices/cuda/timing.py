"""Time launches and calls of a library with CUDA events, in each timing mode.

CuPy has no launches with attributes (clusters, cooperative launches, share of shared memory). They
use the driver's function in NVIDIA's bindings.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...core.errors import LaunchConfigError, TypedError
from ...core.space import USUAL, Condition
from ...workloads.contract import Launch
from ..base import DeviceInfo, Sample, TimedInterval, each_or_error, flush_bytes
from .runtime import Translate

# Blocks of a cluster that every device with clusters has.
_PORTABLE = 8


def driver_bindings() -> Any:
    """Return the module ``cuda.bindings.driver``. Its import loads no driver."""
    return importlib.import_module("cuda.bindings.driver")


def _config(driver: Any, launch: Launch) -> Any:
    attributes = []

    def add(name: str) -> Any:
        attribute = driver.CUlaunchAttribute()
        attribute.id = getattr(driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
        attributes.append(attribute)
        return attribute.value

    if launch.cooperative:
        add("COOPERATIVE").cooperative = 1
    if launch.cluster is not None:
        size = add("CLUSTER_DIMENSION").clusterDim
        size.x, size.y, size.z = launch.cluster
    if launch.carveout is not None:
        add("PREFERRED_SHARED_MEMORY_CARVEOUT").sharedMemCarveout = launch.carveout
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes = launch.shared_bytes
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


def _allow(driver: Any, handle: Any, launch: Launch, check: Callable[[int], None]) -> None:
    """Allow a function clusters that are larger than those of every device."""
    if math.prod(launch.cluster or ()) > _PORTABLE:
        larger = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        check(*driver.cuFuncSetAttribute(handle, larger, 1))


def blocks_in_clusters(
    driver: Any, function: int, launch: Launch, check: Callable[[int], None]
) -> int:
    """Return how many blocks of a launch with clusters fit on the device at the same time.

    Parameters
    ----------
    driver
        The module that `driver_bindings` returns.
    function
        Address of the driver's function.
    launch
        The launch.
    check
        Raises an error for a code of the driver.
    """
    handle = driver.CUfunction(function)
    _allow(driver, handle, launch, check)
    code, count = driver.cuOccupancyMaxActiveClusters(handle, _config(driver, launch))
    check(code)
    return int(count) * math.prod(launch.cluster or ())


def extended(
    driver: Any,
    function: int,
    launch: Launch,
    args: Sequence[Any],
    stream: Callable[[], int],
    check: Callable[[int], None],
) -> Callable[[], None]:
    """Return a function that queues a launch with attributes in the current stream.

    Parameters
    ----------
    driver
        The module that `driver_bindings` returns.
    function
        Address of the driver's function.
    launch
        The launch.
    args
        Arguments as CuPy requires them.
    stream
        Returns the address of the current stream.
    check
        Raises an error for a code of the driver.

    Raises
    ------
    LaunchConfigError
        If the grid does not consist of whole clusters.
    """
    cluster = launch.cluster or (1, 1, 1)
    if any(n % size for n, size in zip(launch.grid, cluster, strict=True)):
        raise LaunchConfigError(f"the grid {launch.grid} is not of whole clusters {cluster}.")
    handle = driver.CUfunction(function)
    _allow(driver, handle, launch, check)
    values = [np.frombuffer(_bytes(arg), np.uint8) for arg in args]
    places = np.array([value.ctypes.data for value in values], np.uint64)
    address = places.ctypes.data
    config = _config(driver, launch)

    def enqueue() -> None:
        config.hStream = driver.CUstream(stream())
        assert len(values) == len(places)  # which point to them
        check(*driver.cuLaunchKernelEx(config, handle, address, 0))

    return enqueue


def _bytes(argument: Any) -> bytes:
    """Return an argument's bytes: a number, the address of a buffer, or the handle of an image."""
    if isinstance(argument, np.generic):
        return argument.tobytes()
    place = argument.data.ptr if hasattr(argument, "data") else argument.ptr
    return np.uint64(place).tobytes()


# One thread that keeps the stream busy while the host queues a sample.
SPIN_SOURCE = """
extern "C" __global__ void spin(long long cycles)
{
    const long long start = clock64();
    while (clock64() - start < cycles)
        ;
}
"""
# Tried in turn while the host is too slow.
SPINS_US = (50, 200, 1000, 10000)


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SamplePlan:
    """Commands that the host queues on a stream for one sample: `times` repetitions of two steps.

    A repetition calls `before`, records a CUDA event, calls `timed`, and records a second event.
    The time between the two events counts.

    Attributes
    ----------
    before
        Queues the untimed work of a repetition, such as a flush of the L2 cache.
    timed
        Queues the timed launches of a repetition.
    times
        Number of repetitions in the sample.
    launches
        Number of kernel launches in one call of `timed`.
    isolated
        Whether the host waits until the work of `before` has finished, before it queues the timed
        launches. They then find the device idle.
    """

    before: Callable[[], None]
    timed: Callable[[], None]
    times: int
    launches: int
    isolated: bool = False


@dataclass(frozen=True)
class Queued:
    """A sample that is queued on a stream.

    Attributes
    ----------
    elapsed_ms
        Returns the time between two events in milliseconds.
    plan
        Commands of the sample.
    events
        Pairs of events around the timed launches.
    late
        Whether the device had to wait for the host.
    """

    elapsed_ms: Callable[[Any, Any], float]
    plan: SamplePlan
    events: list[tuple[Any, Any]]
    late: bool

    def seconds(self) -> float:
        """Return the mean time of a launch in seconds, once the device has finished."""
        total_ms = sum(float(self.elapsed_ms(start, stop)) for start, stop in self.events)
        return total_ms * 1e-3 / (self.plan.times * self.plan.launches)


class EventTimer:
    """Times commands on one stream with CUDA events.

    A spinning kernel keeps the device busy until the host has queued a sample, so that the device
    does not wait for the host.

    Parameters
    ----------
    cupy
        The module CuPy.
    spin
        The kernel of SPIN_SOURCE.
    stream
        The stream.
    info
        Properties of the device.
    translated
        Returns a context manager that converts errors of CuPy.
    """

    def __init__(
        self,
        cupy: Any,
        spin: Any,
        stream: Any,
        info: DeviceInfo,
        translated: Callable[[], Translate],
    ) -> None:
        """Create no events before the first sample."""
        self._cupy = cupy
        self._spin = spin
        self.stream = stream
        self._info = info
        self.translated = translated
        self._events: list[tuple[Any, Any]] = []
        self._filler: Any = None

    def time(self, plan: SamplePlan) -> float:
        """Return the mean time of a launch in seconds, from events around the timed step.

        The device spins while the host queues events and launches, which then follow each other
        without waiting for the host. If the host was too slow, the sample is repeated behind a
        longer spin. The spinning kernel has one thread. It leaves the device as idle as an isolated
        launch must find it, and hides the time that the host needs to launch.

        Parameters
        ----------
        plan
            Commands of the sample.
        """
        if plan.isolated and plan.times > 1:
            once = replace(plan, times=1)
            return math.fsum(self.time(once) for _ in range(plan.times)) / plan.times
        with self.translated(), self.stream:
            for spin_us in SPINS_US:
                if plan.isolated:
                    plan.before()
                    self.stream.synchronize()
                self.spin(spin_us)
                queued = self._queue(plan, 0)
                self.stream.synchronize()
                if not queued.late:
                    return queued.seconds()
            log.warning("the host is too slow: a sample may hold %d us of its time", spin_us)
            return queued.seconds()

    def time_all(self, samples: Sequence[Sample]) -> list[float | TypedError]:
        """Take several samples behind one spinning kernel. None of them may be isolated.

        Parameters
        ----------
        samples
            The samples.

        Returns
        -------
        list
            Mean time of a launch in seconds, or the error, of each sample.
        """
        plans = each_or_error(plan_of, samples)
        place = 0

        def queue(plan: SamplePlan | TypedError) -> Queued:
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
        """Return the mean time of a launch in seconds. Repeat the sample if it was late."""
        return self.time(queued.plan) if queued.late else queued.seconds()

    def spin(self, microseconds: int) -> None:
        """Queue the spinning kernel for about this time, if the clock is at its highest."""
        self._spin((1,), (1,), (np.int64(self._info.core_clock_mhz * microseconds),))

    def _queue(self, plan: SamplePlan, place: int) -> Queued:
        """Queue a sample that uses the pairs of events from index `place` on."""
        events = self.event_pairs(place + plan.times)[place:]
        late = False
        for start, stop in events:
            if not plan.isolated:
                plan.before()
            start.record(self.stream)
            plan.timed()
            stop.record(self.stream)
            late = late or start.done
        return Queued(self._cupy.cuda.get_elapsed_time, plan, events, late)

    def event_pairs(self, n: int) -> list[tuple[Any, Any]]:
        """Return `n` pairs of events. They are created once and reused."""
        event = self._cupy.cuda.Event
        while len(self._events) < n:
            self._events.append((event(), event()))
        return self._events[:n]

    def flush(self) -> None:
        """Queue a write as large as the L2 cache, so that it contains no useful data."""
        if self._filler is None:
            words = flush_bytes(self._info) // 4
            self._filler = self._cupy.empty(words, dtype=np.uint32)
        self._filler.data.memset_async(0x5A, self._filler.nbytes, self.stream)


class CudaLaunch:
    """A launch on one stream. A graph of several launches is captured once and replayed.

    Parameters
    ----------
    timer
        Times commands on the stream.
    enqueue
        Queues the launch.
    renew
        Queues commands that restore the content of buffers before each timed launch, if required.
    """

    def __init__(
        self,
        timer: EventTimer,
        enqueue: Callable[[], None],
        renew: Callable[[], None] | None = None,
    ) -> None:
        """Capture no graph before the first sample."""
        self._timer, self.enqueue, self._renew = timer, enqueue, renew
        self._graphs: dict[int, Callable[[], None]] = {}

    def run(self) -> None:
        """Launch once and wait, or raise LaunchFailedError or DeviceLostError if it fails."""
        with self._timer.translated(), self._timer.stream:
            self.enqueue()
            self._timer.stream.synchronize()

    def sample(self, launches: int, met: Condition = USUAL) -> float:
        """Return the mean time of a launch in seconds.

        One pair of events is around all launches, or one is around each launch (see `plan`).
        """
        return self._timer.time(self.plan(launches, met))

    def interval(self, met: Condition) -> TimedInterval:
        """Return ROW if one pair of events is around all launches of a sample, otherwise EACH."""
        row = self._renew is None and not met.flushed and met.timing_mode != "isolated"
        return TimedInterval.ROW if row else TimedInterval.EACH

    def plan(self, launches: int, met: Condition) -> SamplePlan:
        """Return the commands of a sample.

        Flushed or isolated launches are timed one by one. Several warm launches in a row follow one
        untimed launch, which fills the L2 cache in the same way as they do.

        Parameters
        ----------
        launches
            Number of launches in the sample.
        met
            Measurement condition.

        Raises
        ------
        LaunchConfigError
            If the launches cannot be timed in this timing mode.
        """
        kind = met.timing_mode
        if self._renew is not None:
            return self._renewed(self._renew, launches, met)
        before = self.enqueue if launches > 1 else lambda: None
        if met.flushed:
            timed = self._graph(1) if kind == "graph" else self.enqueue
            return SamplePlan(self._timer.flush, timed, launches, 1, kind == "isolated")
        if kind == "isolated":
            return SamplePlan(before, self.enqueue, launches, 1, isolated=True)
        if kind == "graph" or (kind == "batched" and launches > 1):
            return SamplePlan(before, self._graph(launches), 1, launches)
        return SamplePlan(before, self._one_by_one(launches), 1, launches)

    def _renewed(self, renew: Callable[[], None], launches: int, met: Condition) -> SamplePlan:
        """Return the commands of a sample whose launches find the original content of buffers."""

        def before() -> None:
            renew()
            if met.flushed:
                self._timer.flush()

        if met.timing_mode not in ("batched", "isolated"):
            raise LaunchConfigError(
                f"Launches that change what they read are not timed as '{met.timing_mode}': that "
                "leaves no room to give buffers their content back."
            )
        return SamplePlan(before, self.enqueue, launches, 1, met.timing_mode == "isolated")

    def _one_by_one(self, launches: int) -> Callable[[], None]:
        """Return a function that queues this number of launches separately."""

        def queue() -> None:
            for _ in range(launches):
                self.enqueue()

        return queue

    def _graph(self, launches: int) -> Callable[[], None]:
        """Return a function that replays a graph of this number of launches."""
        if launches not in self._graphs:
            with self._timer.translated(), self._timer.stream as stream:
                graph = self._captured(stream, launches)
                # Else the first replay uploads it.
                graph.upload(stream)
                self._graphs[launches] = partial(graph.launch, stream)
        return self._graphs[launches]

    def _captured(self, stream: Any, launches: int) -> Any:
        """Capture a graph of this number of launches. If that fails, the stream stays usable."""
        stream.begin_capture()
        try:
            for _ in range(launches):
                self.enqueue()
        except BaseException:
            with suppress(Exception):
                stream.end_capture()
            raise
        return stream.end_capture()


def plan_of(sample: Sample) -> SamplePlan:
    """Return the commands of a sample whose launch belongs to this backend."""
    assert isinstance(sample.bound, CudaLaunch)
    return sample.bound.plan(sample.launches, sample.met)
