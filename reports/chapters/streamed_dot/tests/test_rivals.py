"""Ways timed in rounds, and what is concluded from them: planted ratios are found, ties are not."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from dot_products.host_ways import WAYS
from gpushmoo.core.errors import LaunchConfigError
from gpushmoo.devices.base import Device
from gpushmoo.workloads.loader import load_kernel
from matplotlib.figure import Figure
from streamed_dot import rivals as rivals_module
from streamed_dot import verdicts
from streamed_dot.figure_studies import rivals
from streamed_dot.rivals import (
    BETWEEN,
    COPY,
    DEVICE_WAYS,
    GRAPH,
    LENGTH,
    ON_DEVICE,
    PARAMETER,
    SHARE,
    SHORT_STEP_S,
    STEP_S,
    Call,
    Rivals,
    at_rest,
    in_rounds,
    run_rivals,
    step_s,
)
from streamed_dot.today import captured
from test_figures import assert_readable, note_of

ROUNDS = 12
NOISE = 0.05


def rows(comparison: str, n: int, ways: dict[str, float], **other: Any) -> list[dict[str, Any]]:
    """Each round is up to twice as slow as another, and a way within it by up to NOISE."""
    rng = np.random.default_rng(n)
    of = {"comparison": comparison, "operation": "x·y", "dtype": "double", "n": n, **other}
    slow = rng.uniform(1, 2, ROUNDS)
    return [
        {**of, "way": way, "round": i, "seconds": t * slow[i] * rng.uniform(1, 1 + NOISE)}
        for way, t in ways.items()
        for i in range(ROUNDS)
    ]


def table(*parts: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame([row for part in parts for row in part])


def lengths(device: Callable[[int], float]) -> pd.DataFrame:
    """A host of 2, 1 and 0.25 s an element, by one loop, one core and all."""
    return table(
        *(
            rows(
                LENGTH,
                n,
                {"naive": 2.0 * n, "blas-one": 1.0 * n, "blas-all": 0.25 * n}
                | {way: device(n) for way in ON_DEVICE}
                | {GRAPH: device(n) / 2},
            )
            for n in (64, 256, 1024, 4096)
        )
    )


def test_the_device_pays_from_where_its_start_is_made_up_for() -> None:
    found = {(r.way, r.against): r for r in verdicts.rivalries(lengths(lambda n: 500 + 0.5 * n))}
    # Of one loop from n = 333 on, of one core from 1000 on; of all cores never.
    naive, one = found["as published", "naive"], found["as published", "blas-one"]
    assert (naive.n, one.n, found["as published", verdicts.FASTEST].n) == (1024, 1024, None)
    assert naive.at == 4096
    assert naive.ratios[4096].median == pytest.approx(8192 / 2548, rel=NOISE)
    assert len(found) == (len(ON_DEVICE) + 1) * (len(verdicts.AGAINST) + 1)
    assert found[GRAPH, "pooled"].ratios[64].median == pytest.approx(2.0, rel=NOISE)
    # A tie pays nowhere, nor a length after which the host wins again.
    tied = verdicts.rivalries(lengths(lambda n: 2.0 * n))
    assert [r.n for r in tied if (r.way, r.against) == ("pooled", "naive")] == [None]
    again = verdicts.rivalries(lengths(lambda n: 0.1 * n if n != 1024 else 9.0 * n))
    assert {r.n for r in again if r.against != "pooled"} == {4096}


def test_a_share_is_chosen_in_other_rounds_than_it_is_judged_in() -> None:
    both = 1 / (1 / 2.0 + 1 / 1.0)
    cells = table(rows(SHARE, 64, {"0": 2.0, "50": 1.2, "65": both, "100": 1.0}))
    (found,) = verdicts.sharings(cells)
    assert found.share == 65
    assert found.predicted == pytest.approx(100 * 2 / 3, rel=NOISE)
    assert found.gain.median == pytest.approx(1.5, rel=NOISE)
    assert found.reached.median == pytest.approx(1.0, rel=NOISE)
    # What only the first half of the rounds knows counts for the choice alone.
    late = (cells["way"] == "65") & (cells["round"] >= ROUNDS // 2)
    cells.loc[late, "seconds"] *= 10
    (found,) = verdicts.sharings(cells)
    assert found.share == 65
    assert found.gain.high < 1
    for lacking in ({"0": 1.0, "50": 1.0}, {"0": 1.0, "100": 1.0}):
        assert verdicts.sharings(table(rows(SHARE, 64, lacking))) == []


def test_a_parameter_is_held_against_all_as_printed() -> None:
    ways = {"as published": 4.0, "as published, streams 1": 1.0, "as published, threads 128": 4.0}
    streams, threads = verdicts.changes(table(rows(PARAMETER, 64, ways)))
    assert (streams.way, streams.change) == ("as published", "streams 1")
    assert streams.cost.median == pytest.approx(0.25, rel=NOISE)
    assert threads.cost.low <= 1 <= threads.cost.high


def test_between_powers_of_two_throughputs_are_compared() -> None:
    ways = {"64": 1.0, "96": 1.0, "128": 4.0, "64, pooled": 1.0, "96, pooled": 3.0}
    found = verdicts.betweens(table(rows(BETWEEN, 64, ways)))
    third = pytest.approx(1 / 3)
    assert [(b.kept, b.n, b.host) for b in found] == [
        (False, 96, third),
        (False, 128, 0.0),
        (True, 96, third),
    ]
    assert [b.gain.median for b in found] == [pytest.approx(g, rel=NOISE) for g in (1.5, 0.5, 0.5)]
    copied = verdicts.copied(table(rows(COPY, 10**9, {"host to device": 0.8})))
    assert 5 < copied["host to device"].high <= 10.0


def test_figure_is_readable_and_its_note_has_the_tables(
    drawn: list[Figure], tmp_path: Path
) -> None:
    dtypes = ("float", "double")
    parts = [lengths(lambda n: 500 + 0.5 * n).assign(dtype=dtype) for dtype in dtypes]
    more = table(
        rows(SHARE, 64, {"0": 2.0, "60": 0.7, "100": 1.0}),
        rows(PARAMETER, 64, {"pooled": 2.0, "pooled, streams 1": 1.0}),
        rows(BETWEEN, 64, {"64": 1.0, "96": 2.0}),
        rows(COPY, 64, {"host to device": 1.0}),
    )
    rivals(pd.concat([*parts, more]), tmp_path / "a.svg")
    assert_readable(drawn[0])
    note = note_of(tmp_path / "a.svg")
    assert len(note["rivalries"]) == len(dtypes) * (len(ON_DEVICE) + 1)
    assert len(note["findings"]) == len(dtypes) + 2
    assert "unlike the document's" in note["findings"][0]
    assert "is smaller" in note["findings"][-1]
    rivals(lengths(lambda n: 9.0 * n), tmp_path / "a.svg")
    (finding,) = note_of(tmp_path / "a.svg")["findings"]
    assert "is slower than the naive loop at the longest arrays, as the document says" in finding


def test_every_way_has_its_turn_in_every_round_after_threads_came_to_rest() -> None:
    now = [0.0]
    log: list[str] = []

    def way(letter: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            log.append(letter)
            now[0] += seconds

        return run

    # What comes before a run is not timed.
    alone = Call(way("a", 1.0), before=lambda: now.__setitem__(0, now[0] + 5.0))
    ways = {"alone": alone, "all": Call(way("t", 2.0), threaded=True)}
    rng = np.random.default_rng(1)
    found = in_rounds(ways, 8, True, rng, lambda: now[0], lambda: log.append("."))
    assert sorted((n, w) for n, w, _ in found) == sorted((n, w) for n in range(8) for w in ways)
    assert {(w, round(s, 9)) for _, w, s in found} == {("alone", 1.0), ("all", 2.0)}
    # A turn is a call outside of the clock and one within.
    turns = "".join(log[2 * len(ways) :])
    assert re.fullmatch(r"(\.?(tt|aa))+", turns)
    assert turns.startswith(".")
    assert turns[1:].count("tt.") == turns[1:].count(".") == turns[:-1].count("t") // 2
    orders = {tuple(w for n, w, _ in found if n == k) for k in range(8)}
    assert orders == {("alone", "all"), ("all", "alone")}
    log.clear()
    in_rounds(ways, 2, False, rng, lambda: now[0], lambda: log.append("."))
    assert "." not in log


@pytest.mark.parametrize("counted", [True, False])
def test_a_step_is_short_only_if_the_system_counts_it(
    counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_s.cache_clear()
    monkeypatch.setattr(rivals_module, "_used_s", lambda seconds: seconds if counted else 0.0)
    assert step_s() == (SHORT_STEP_S if counted else STEP_S)
    step_s.cache_clear()


def test_threads_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals_module, "step_s", lambda: STEP_S)
    used, slept = itertools.chain([0.0, 0.03, 0.03, 0.05, 0.05], itertools.repeat(0.05)), []
    monkeypatch.setattr("time.process_time", lambda: next(used))
    monkeypatch.setattr("time.sleep", slept.append)
    at_rest()
    assert len(slept) == 3
    monkeypatch.setattr("time.process_time", itertools.count(0.0, 1.0).__next__)
    slept.clear()
    at_rest()
    assert sum(slept) == pytest.approx(0.5)


def test_all_comparisons_are_made_and_verified(device: Device) -> None:
    names = ("dot_streamed", "dot_square")
    folders = {name: load_kernel(ROOT / "kernels" / name) for name in names}
    rounds = Rivals((64, 4096), (4096,), (4096,), (1024,), 6, 1)
    found = run_rivals(device, folders, rounds).to_pandas()
    assert set(found["comparison"]) == {LENGTH, SHARE, PARAMETER, BETWEEN, COPY}
    assert set(found.groupby(["comparison", "operation", "dtype", "n", "way"]).size()) == {6}
    assert (found["seconds"] > 0).all()
    ways = DEVICE_WAYS if device.info.backend == "cuda" else ON_DEVICE
    assert set(found.loc[found["comparison"] == LENGTH, "way"]) == {*WAYS, *ways}
    assert len(verdicts.rivalries(found)) == 4 * len(ways) * (len(verdicts.AGAINST) + 1)


def test_ways_without_copies_or_by_a_graph_are_verified_where_the_backend_has_them(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyopencl

    flags = pyopencl.mem_flags.READ_WRITE | pyopencl.mem_flags.USE_HOST_PTR
    folders = {"dot_streamed": load_kernel(ROOT / "kernels/dot_streamed")}
    replaced: dict[str, Any] = {
        "rivals.in_place": lambda d, held: pyopencl.Buffer(d._context, flags, hostbuf=held),
        "rivals.managed_array": lambda d, array: d.streams.host_array(array, False),
        "today.captured": lambda streams, queue: queue,
    }
    for name, way in replaced.items():
        monkeypatch.setattr(f"streamed_dot.{name}", way)
    monkeypatch.setattr(type(opencl_device), "cupy", None, raising=False)
    rounds = Rivals((5000,), (), (), (), 6, 1)
    found = run_rivals(opencl_device, folders, rounds).to_pandas()
    assert set(found.loc[found["comparison"] == LENGTH, "way"]) == {*WAYS, *DEVICE_WAYS}
    lost = opencl_device.streams.host_array(np.zeros(5000), False)
    for name, way in {
        "today.captured": lambda *_: lambda: None,
        "rivals.managed_array": lambda d, array: np.zeros_like(array),
        "rivals.in_place": lambda d, held: pyopencl.Buffer(d._context, flags, hostbuf=lost),
    }.items():
        monkeypatch.setattr(f"streamed_dot.{name}", way)
        with pytest.raises(ValueError, match="is not"):
            run_rivals(opencl_device, folders, rounds)


def test_a_way_that_is_refused_is_left_out_and_one_that_is_wrong_ends_the_study(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {"dot_streamed": load_kernel(ROOT / "kernels/dot_streamed")}
    workload: Any = folders["dot_streamed"].workload
    pipeline = type(workload).pipeline
    rounds = Rivals((64,), (), (), (), 6, 1)

    def refuses(self: Any, cell: Any) -> Any:
        if cell.variant == "published":
            raise LaunchConfigError("no")
        return pipeline(self, cell)

    with monkeypatch.context() as patched:
        patched.setattr(type(workload), "pipeline", refuses)
        found = run_rivals(opencl_device, folders, rounds).to_pandas()
    assert set(found.loc[found["comparison"] == LENGTH, "way"]) >= {"pooled", "naive"}
    assert "as published" not in set(found["way"])
    monkeypatch.setattr("streamed_dot.rivals.dot_by", lambda *_: 1.0)
    with pytest.raises(ValueError, match=r"blas-all, x·y, float, n = 64: .* is wrong"):
        run_rivals(opencl_device, folders, rounds)


class CapturedStream:
    """CuPy's stream; `log` gets each call in order."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log
        self.stream = self

    def __getattr__(self, call: str) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            self.log.append(" ".join([self.name, call, *map(str, args)]))
            return self if call == "end_capture" else f"{self.name}'s"

        return called

    def __str__(self) -> str:
        return self.name


def test_a_graph_begins_in_the_first_stream_and_waits_for_all() -> None:
    log: list[str] = []
    first, second = (CapturedStream(name, log) for name in ("first", "second"))

    launch = captured([first, second], lambda: log.append("queue"))
    forks = ["first begin_capture", "first record", "second wait_event first's"]
    joins = ["queue", "second record", "first wait_event second's", "first end_capture"]
    assert log == [*forks, *joins, "first upload first", "first synchronize"]
    launch()
    assert log[-1] == "first launch first"
    with pytest.raises(ZeroDivisionError):
        captured([first], lambda: log.append(1 // 0))
    assert log[-1] == "first end_capture"
