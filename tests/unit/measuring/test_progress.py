"""Progress on a terminal and elsewhere: what it says, how often, and from when on it estimates."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import Bench
from conftest import USER_CUDA, USER_OPENCL
from fakes import FakeClock
from gpushmoo.core.news import News, heartbeat
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.measuring.progress import Progress, duration
from projects import wait_until

CLEAR = "\r\x1b[K"


class Terminal(io.StringIO):
    """Keeps what is on it in the end."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        return [line.rpartition(CLEAR)[2] for line in self.getvalue().split("\n")]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)


@pytest.fixture
def progress(clock: FakeClock) -> Progress:
    return Progress("shard 2/7 tiny float", 40, io.StringIO(), clock=clock)


def lines_of(progress: Progress) -> list[str]:
    assert isinstance(progress.stream, io.StringIO)
    return progress.stream.getvalue().splitlines()


def test_lines_tell_the_share_of_the_work(progress: Progress, clock: FakeClock) -> None:
    progress.announce()
    clock.now += 20.0
    progress.update(0.4)
    clock.now += 20.0
    progress.update(0.8)
    clock.now += 50.0
    progress.finish("39 ok, 1 timeout")
    assert lines_of(progress) == [
        "shard 2/7 tiny float: 40 cells to measure",
        "shard 2/7 tiny float: 40 % of 40 cells, about 30 s left",
        "shard 2/7 tiny float: 80 % of 40 cells, about 10 s left",
        "shard 2/7 tiny float: 39 ok, 1 timeout in 1 min 30 s",
    ]


def test_what_takes_long_has_few_lines(progress: Progress, clock: FakeClock) -> None:
    for i in range(7200):
        clock.now += 0.5
        progress.update(i / 7200)
    assert 10 < len(lines_of(progress)) < 50
    assert "left" in lines_of(progress)[-1]


def steps(*parts: tuple[float, float]) -> Iterator[tuple[float, float]]:
    """Half seconds and the share that is done, from pairs of a share and the seconds until it."""
    begin = 0.0
    for share, seconds in parts:
        n = int(2 * seconds)
        yield from ((0.5, begin + (share - begin) * i / n) for i in range(1, n + 1))
        begin = share


def test_the_time_left_is_told_by_samples_and_not_by_the_verification_before(
    clock: FakeClock,
) -> None:
    terminal = Terminal()
    progress = Progress("a", 12, terminal, in_place=True, clock=clock)
    told = []
    # The first 5 % take 20 s, the rest 20 s.
    for seconds, share in steps((0.05, 20.0), (1.0, 20.0)):
        clock.now += seconds
        progress.update(share)
        if "left" in terminal.lines[-1]:
            told.append((share, int(terminal.lines[-1].split("about ")[1].split()[0])))
    assert min(share for share, _ in told) >= 0.1
    assert all(abs(left - 20 * (1 - share) / 0.95) < 2 for share, left in told)


@pytest.mark.parametrize(
    ("share", "seconds"), [(0.0, 60.0), (0.01, 60.0), (0.09, 60.0), (1.0, 60.0), (0.11, 1.9)]
)
def test_no_time_left_is_told_before_it_is_known(
    share: float, seconds: float, clock: FakeClock
) -> None:
    terminal = Terminal()
    progress = Progress("a", 12, terminal, in_place=True, clock=clock)
    clock.now += seconds
    progress.update(share)
    assert "12 cells" in terminal.lines[-1]
    assert "left" not in terminal.lines[-1]


def test_a_slow_begin_makes_no_long_time_of_a_short_rest(clock: FakeClock) -> None:
    """A compiler or a first launch may take as long as all samples."""
    terminal = Terminal()
    progress = Progress("a", 12, terminal, in_place=True, clock=clock)
    told = []
    for seconds, share in steps((0.02, 30.0), (1.0, 7.0)):
        clock.now += seconds
        progress.update(share)
        if "left" in terminal.lines[-1]:
            told.append(int(terminal.lines[-1].split("about ")[1].split()[0]))
    assert told
    assert max(told) <= 8


def test_on_a_terminal_of_its_own_one_line_is_replaced(clock: FakeClock) -> None:
    terminal = Terminal()
    progress = Progress("x" * 300, 12, terminal, in_place=True, clock=clock)
    progress.announce()
    for share in (0.1, 0.5, 0.9):
        clock.now += 0.5
        progress.update(share)
    # Cut, so that it takes one line.
    [shown] = terminal.lines
    assert 0 < len(shown) < 300
    progress.finish("12 ok")
    assert terminal.lines == [f"{'x' * 300}: 12 ok in 2 s", ""]
    progress.update(0.5)
    progress.close()
    assert terminal.lines[-1] == ""


def test_a_jobs_lines_stay_on_a_terminal_that_other_jobs_write_to(
    make_kernel: Callable[..., Path],
    opencl_choice: DeviceChoice,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    bench = Bench(opencl_choice, make_kernel("mine", USER_CUDA, USER_OPENCL), tmp_path)
    bench.terminal = Terminal()
    bench.measure(["good"], [32, 64])
    assert "2 ok" in bench.terminal.getvalue()
    assert CLEAR not in bench.terminal.getvalue()


def test_a_brief_one_has_a_line_only_if_it_takes_long(clock: FakeClock) -> None:
    progress = Progress("a", 12, io.StringIO(), brief=True, clock=clock)
    progress.announce()
    progress.update(0.5)
    progress.finish("12 ok")
    assert lines_of(progress) == []
    clock.now += 5.0
    progress.finish("12 ok")
    assert len(lines_of(progress)) == 1
    terminal = Terminal()
    progress = Progress("a", 12, terminal, in_place=True, brief=True, clock=clock)
    progress.update(0.5)
    progress.finish("12 ok")
    assert terminal.lines == [""]


def test_what_stays_is_written_on_a_line_of_its_own() -> None:
    terminal = Terminal()
    news = News(terminal, in_place=True)
    news.show("compiling")
    news.write("a warning")
    assert terminal.lines == ["a warning", ""]


def test_other_streams_are_never_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    for stream in (io.StringIO(), Terminal()):
        news = News(stream, in_place=True)
        news.show("compiling")
        news.write("a warning")
        news.clear()
        assert stream.getvalue() == "a warning\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (59.4, "59 s"),
        (60, "1 min 0 s"),
        (185, "3 min 5 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (2 * 3600 + 4 * 60 + 59, "2 h 4 min"),
        (26 * 3600 + 59 * 60, "26 h 59 min"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_long_work_without_news_has_a_line_now_and_then() -> None:
    stream = io.StringIO()
    with heartbeat(stream, "looking"):
        pass
    assert not stream.getvalue()
    with heartbeat(stream, "looking", 0.001):
        wait_until(lambda: stream.getvalue().count("looking (") >= 2, "two lines")
