"""Feeding a device from the host: the order of it, what is kept, and what an error leaves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from dot_products.in_turn import by_streams
from fakes import FakeClock
from gpushmoo.core.errors import DeviceError, LaunchFailedError, OutOfDeviceMemoryError
from gpushmoo.core.space import Condition
from gpushmoo.devices.base import Device
from gpushmoo.devices.streams import Mark
from gpushmoo.measuring.host_pipeline import Feed, Pool
from gpushmoo.workloads.contract import BufferRef, Launch
from gpushmoo.workloads.host_fed import Piece, Pipeline, StreamSetup, cuts
from hypothesis import example, given
from hypothesis import strategies as st

Array = npt.NDArray[Any]
# The library's own, and that of the printed dot product.
SETUPS = [*StreamSetup, by_streams]


@dataclass(eq=False)
class Memory:
    """Device memory of one stream; others may use it once the stream was waited for."""

    owner: FakeStream
    data: Array
    settled: bool = False
    freed: bool = False


@dataclass
class FakeStreams:
    """A device that does what was queued when it is waited for; `log` lists what was asked.

    `faults` maps an operation and how often it came before to what it raises; the stream of a fault
    repeats it until it is closed. `capacity` is in bytes.
    """

    faults: dict[tuple[str, int], DeviceError] = field(default_factory=dict)
    capacity: int = 10**9
    clock: FakeClock = field(default_factory=FakeClock)
    opening_s: float = 0.0
    log: list[tuple[Any, ...]] = field(default_factory=list)
    live: list[Memory] = field(default_factory=list)
    opens: list[FakeStream] = field(default_factory=list)
    opened: int = 0
    asked: Counter[str] = field(default_factory=Counter)

    @property
    def streams(self) -> FakeStreams:
        return self

    def host_array(self, array: Array, pinned: bool) -> Array:
        return array.copy()

    def open(self) -> FakeStream:
        self.told("open")
        self.clock.now += self.opening_s
        self.opens.append(FakeStream(self, self.opened))
        self.opened += 1
        return self.opens[-1]

    def told(self, operation: str, *what: object) -> None:
        """Note an operation; raise what is due at this one."""
        self.log.append((operation, *what))
        self.asked[operation] += 1
        fault = self.faults.get((operation, self.asked[operation] - 1))
        if fault is not None:
            raise fault

    def poison(self, memory: Memory) -> None:
        assert memory.settled
        assert not memory.freed
        memory.data.fill(0xFF)

    @property
    def held(self) -> int:
        """Count the bytes that are allocated."""
        return sum(m.data.size for m in self.live)


@dataclass(eq=False)
class FakeStream:
    device: FakeStreams
    number: int
    queue: list[Callable[[], None]] = field(default_factory=list)
    fault: DeviceError | None = None

    def __enter__(self) -> FakeStream:
        return self

    def __exit__(self, *exc: object) -> None:
        # It is gone with its memory, whatever it raises.
        self.device.opens.remove(self)
        for memory in [m for m in self.device.live if m.owner is self]:
            memory.freed = True
            self.device.live.remove(memory)
        self.queue.clear()
        self.device.told("close", self.number)

    def ask(self, operation: str, *what: object) -> None:
        assert self in self.device.opens
        if self.fault is None:
            try:
                self.device.told(operation, self.number, *what)
            except DeviceError as err:
                self.fault = err
        if self.fault is not None:
            raise self.fault

    def release(self) -> None:
        """Gone with the stream: what was queued still uses it."""

    def usable(self, *memories: Memory) -> None:
        assert not any(m.freed for m in memories)
        assert all(m.owner is self or m.settled for m in memories)

    def allocate(self, nbytes: int) -> Memory:
        self.ask("allocate", nbytes)
        if self.device.held + nbytes > self.device.capacity:
            raise OutOfDeviceMemoryError("The buffer does not fit.")
        self.device.live.append(Memory(self, np.zeros(nbytes, np.uint8)))
        return self.device.live[-1]

    def copy_in(self, target: Memory, source: Array) -> None:
        self.ask("copy_in", source.size)
        self.usable(target)
        raw = source.view(np.uint8)
        self.queue.append(lambda: np.copyto(target.data[: raw.size], raw))

    def copy_out(self, target: Array, source: Memory) -> None:
        self.ask("copy_out", target.size)
        self.usable(source)
        self.queue.append(lambda: np.copyto(target.view(np.uint8), source.data[: target.nbytes]))

    def launch(self, program: Any, launch: Launch, buffers: Mapping[str, Memory]) -> None:
        self.ask("launch", *numbers(launch))
        self.usable(*buffers.values())
        self.queue.append(lambda: program(launch, buffers))

    def mark(self) -> Mark:
        self.ask("mark")
        reached_s: list[float] = []
        self.queue.append(lambda: reached_s.append(self.device.clock.now))
        return Mark(reached_s, lambda earlier, later: later[0] - earlier[0])

    def wait(self) -> None:
        self.ask("wait")
        for step in self.queue:
            step()
        self.queue.clear()
        for memory in self.device.live:
            memory.settled = memory.settled or memory.owner is self


def numbers(launch: Launch) -> list[int]:
    """Elements of the piece, and the place of its partial result."""
    return [int(a) for a in launch.args if isinstance(a, np.generic)]


def dot_piece(launch: Launch, buffers: Mapping[str, Memory]) -> None:
    """The kernel: the piece's dot product, to its place among the partial results."""
    x, y, partials = (buffers[n].data.view(np.float32) for n in ("x", "y", "partials"))
    n, first = numbers(launch)
    partials[first] = np.dot(x[:n], y[:n])


def does_nothing(launch: Launch, buffers: Mapping[str, Memory]) -> None:
    """A launch that does not run."""


def pipeline(
    n: int, streams: int = 2, chunk: int = 0, setup: Any = StreamSetup.BEFORE, host: int = 0
) -> Pipeline:
    """Of `n` elements, the last `host` of which are the host's."""
    pieces = []
    for i, cut in enumerate(cuts(n - host, streams, 1, chunk)):
        refs = (BufferRef("x"), BufferRef("y"), BufferRef("partials"))
        args = (*refs, np.uint64(cut.end - cut.begin), np.uint64(i))
        launch = Launch("dot_piece", (1, 1, 1), (1, 1, 1), args, 1)
        pieces.append(Piece(cut.stream, cut.begin, cut.end, launch))
    used = 1 + max((p.stream for p in pieces), default=-1)
    return Pipeline(used, tuple(pieces), len(pieces), n - host, n, True, setup)


@dataclass
class Bench:
    """A device, a pool on it, and feeds of small integers, whose dot products are exact."""

    device: FakeStreams = field(default_factory=FakeStreams)
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        self.pool = Pool(cast(Device, self.device), ("x", "y"))

    def feed(self, plan: Pipeline, program: Any = dot_piece, poisoned: bool = False) -> Feed:
        n = plan.host_end
        arrays = {"x": np.arange(n, dtype=np.float32) % 7, "y": np.arange(n, dtype=np.float32) % 5}
        clock = self.device.clock
        return Feed(self.pool, program, plan, arrays, self.host_part, total, clock, poisoned)

    def host_part(self, arrays: Mapping[str, Array]) -> float:
        self.device.told("host", arrays["x"].size)
        return float(np.dot(arrays["x"], arrays["y"]))

    @property
    def streams(self) -> list[Any]:
        """Return the streams of the pool."""
        found = [lane.stream for lane in self.pool.lanes]
        return found if self.pool.keeper is None else [*found, self.pool.keeper]


def total(partials: Array, host_part: float) -> float:
    return float(partials.sum()) + host_part


def expected(n: int) -> float:
    return float(sum((i % 7) * (i % 5) for i in range(n)))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_host_works_while_the_device_does(bench: Bench) -> None:
    feed = bench.feed(pipeline(10, streams=2, chunk=3, host=2))
    bench.device.log.clear()
    feed.run()
    assert bench.device.log == [
        ("copy_in", 0, 3),
        ("copy_in", 0, 3),
        ("launch", 0, 3, 0),
        ("copy_in", 1, 3),
        ("copy_in", 1, 3),
        ("launch", 1, 3, 1),
        ("copy_in", 0, 1),
        ("copy_in", 0, 1),
        ("launch", 0, 1, 2),
        ("copy_in", 1, 1),
        ("copy_in", 1, 1),
        ("launch", 1, 1, 3),
        ("host", 2),
        ("wait", 0),
        ("wait", 1),
        ("copy_out", 0, 4),
        ("wait", 0),
    ]


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("n", [0, 50])
def test_host_alone_asks_nothing_of_the_device(bench: Bench, n: int, setup: Any) -> None:
    feed = bench.feed(pipeline(n, setup=setup, host=n), poisoned=True)
    feed.run()
    assert feed.value == expected(n)
    assert bench.device.log == [("host", n)]


@pytest.mark.parametrize("fresh", [(), (1,), (4,), (1, 4)])
def test_what_fits_alone_fits_whatever_was_fed_before(bench: Bench, fresh: tuple[int, ...]) -> None:
    """Rooms of one stream and of four do not fit together; each of them does."""
    bench.device.capacity = 2 * 4 * 100 + 4 * 4
    setups = (StreamSetup.BEFORE, StreamSetup.WITHIN)
    one, four = (bench.feed(pipeline(100, streams=s, setup=setups[s in fresh])) for s in (1, 4))
    for feed in (four, one, four):
        feed.run()
        assert feed.value == expected(100)


PLANS = st.builds(
    pipeline,
    st.integers(8, 200),
    streams=st.integers(1, 5),
    chunk=st.integers(0, 40),
    setup=st.sampled_from(SETUPS),
    host=st.integers(0, 8),
)
OPERATIONS = st.sampled_from(["open", "allocate", "copy_in", "launch", "wait", "copy_out", "close"])
FAULTS = st.dictionaries(st.tuples(OPERATIONS, st.integers(0, 40)), st.just(None), max_size=4)


@given(plans=st.lists(PLANS, min_size=1, max_size=5), where=FAULTS, capacity=st.integers(0, 3000))
@example([pipeline(100, streams=3, setup=StreamSetup.BEFORE)], {("launch", 1): None}, 10**9)
@example([pipeline(100, streams=3, setup=StreamSetup.WITHIN)], {("allocate", 5): None}, 10**9)
def test_every_feed_is_right_or_raises_and_harms_no_other(
    plans: list[Pipeline], where: dict[tuple[str, int], None], capacity: int
) -> None:
    faults: dict[tuple[str, int], DeviceError] = {w: LaunchFailedError("a fault") for w in where}
    bench = Bench(FakeStreams(faults, capacity))
    for plan in [*plans, *plans]:
        before = bench.device.held
        feed = None
        try:
            feed = bench.feed(plan, poisoned=True)
            feed.run()
        except DeviceError:
            assert feed is None or math.isnan(feed.value)
            assert not (plan.setup is StreamSetup.BEFORE and bench.device.held)
        else:
            assert feed.value == expected(plan.host_end)
        # What is beside the pool leaves it as it was, or took its memory.
        assert plan.setup is StreamSetup.BEFORE or bench.device.held in (before, 0)
        assert {*bench.device.opens} == {*bench.streams}
        assert {m.owner for m in bench.device.live} <= {*bench.streams}
        # A stream repeats its fault until it is closed: none of them is kept.
        assert all(stream.fault is None for stream in bench.device.opens)
    bench.device.faults.clear()
    bench.device.capacity = 10**9
    for plan in plans:
        feed = bench.feed(plan, poisoned=True)
        feed.run()
        assert feed.value == expected(plan.host_end)
    bench.pool.__exit__()
    assert (bench.device.live, bench.device.opens) == ([], [])


@pytest.mark.parametrize("setup", SETUPS)
def test_a_result_that_is_not_written_shows(bench: Bench, setup: Any) -> None:
    plan = pipeline(100, streams=3, setup=setup)
    right = bench.feed(plan)
    right.run()
    lazy = bench.feed(plan, does_nothing, poisoned=True)
    lazy.run()
    assert math.isnan(lazy.value)


def test_input_that_is_not_copied_shows(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = pipeline(100, streams=3)
    plain, poisoned = bench.feed(plan), bench.feed(plan, poisoned=True)
    plain.run()
    monkeypatch.setattr(FakeStream, "copy_in", lambda self, target, source: None)
    # The packages still hold what was copied last.
    plain.run()
    assert plain.value == expected(100)
    poisoned.run()
    assert math.isnan(poisoned.value)


def test_piece_that_is_read_beyond_its_end_shows_in_a_poisoned_run(bench: Bench) -> None:
    def reads_one_more(launch: Launch, buffers: Mapping[str, Memory]) -> None:
        n, first = numbers(launch)
        args = (*launch.args[:3], np.uint64(n + 1), np.uint64(first))
        dot_piece(Launch("dot_piece", launch.grid, launch.block, args, 1), buffers)

    bench.feed(pipeline(100, streams=1))
    feed = bench.feed(pipeline(50, streams=1), reads_one_more, poisoned=True)
    feed.run()
    assert math.isnan(feed.value)


@pytest.mark.parametrize(("setup", "seconds"), [*zip(SETUPS, (0.0, 30.0, 30.0), strict=True)])
def test_fresh_streams_count_as_time(bench: Bench, setup: Any, seconds: float) -> None:
    bench.device.opening_s = 10.0
    feed = bench.feed(pipeline(100, streams=2, setup=setup))
    assert feed.sample(4) == pytest.approx(seconds)
    # Nor when another one's failure has emptied the pool.
    bench.pool.__exit__()
    assert feed.sample(4, Condition("flushed")) == pytest.approx(seconds)


def test_time_is_the_mean_without_attempts_that_failed(bench: Bench) -> None:
    clock, seconds = bench.device.clock, iter([1.0, 2.0, 6.0])

    def slow(launch: Launch, buffers: Mapping[str, Memory]) -> None:
        clock.now += next(seconds)

    assert bench.feed(pipeline(5, streams=1), slow).sample(3) == pytest.approx(3.0)
    bench.device.capacity = 2 * 4 * 100 + 4
    bench.feed(pipeline(100, streams=1))
    bench.device.opening_s = 1.0
    fresh = bench.feed(pipeline(100, streams=1, setup=StreamSetup.WITHIN))
    assert fresh.sample(1) == pytest.approx(2.0)  # its stream and the keeper of its partial result
