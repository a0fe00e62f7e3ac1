"""What the CUDA backend times: launches alone, replayed as a graph, or calls of a library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from .base import Sample

if TYPE_CHECKING:
    from .cuda import CudaDevice


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


def steps_of(sample: Sample) -> Steps:
    """How `sample`, of a bound of this backend, is taken."""
    assert isinstance(sample.bound, CudaBound)
    return sample.bound.steps(sample.launches, sample.flushed)


class CudaBound:
    """A launch on one stream; several launches are captured in a graph once and replayed."""

    def __init__(self, device: CudaDevice, enqueue: Callable[[], None]) -> None:
        self._device, self.enqueue = device, enqueue
        self._graphs: dict[int, Callable[[], None]] = {}

    def run(self) -> None:
        """Launch once and wait. Raises LaunchFailedError or DeviceLostError."""
        with self._device.translated(), self._device.stream:
            self.enqueue()
            self._device.stream.synchronize()

    def sample(self, launches: int) -> float:
        """Seconds per launch between two events around the launches (a graph when several)."""
        return self._device.time(self.steps(launches, flushed=False))

    def sample_flushed(self, launches: int) -> float:
        """Mean seconds of the launches, the L2 cache filled with other data before each."""
        return self._device.time(self.steps(launches, flushed=True))

    def steps(self, launches: int, flushed: bool) -> Steps:
        """How a sample is taken.

        Several warm launches are short ones, whose data the L2 cache may hold: an untimed launch
        before them makes sure that it does.
        """
        if flushed:
            return Steps(self._device.flush, self.enqueue, launches, 1)
        if launches == 1:
            return Steps(lambda: None, self.enqueue, 1, 1)
        return Steps(self.enqueue, self._graph(launches), 1, launches)

    def _graph(self, launches: int) -> Callable[[], None]:
        """Replays `launches` launches; captured at the first call."""
        if launches not in self._graphs:
            with self._device.translated(), self._device.stream as stream:
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
