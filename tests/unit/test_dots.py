"""What the sweeps of dot products say, from cells that are made up."""

from __future__ import annotations

import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from conftest import ROOT
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.report.chapter_pages import Measured, Page
from gpushmoo.report.tables import Json
from gpushmoo.storage.dataset import read_cells
from hypothesis import given
from hypothesis import strategies as st
from streamed_dot.analysis import (
    AXES,
    FASTEST_HOST,
    HOST,
    LIBRARY,
    RESIDENT,
    SQUARE,
    STREAMED,
    copied_gbs,
    crossovers,
    effects,
    fastest,
    plot_series,
    residents,
    splits,
)
from streamed_dot.pages import dots_page, page

LENGTHS = (64, 256, 1024, 4096)
VARIANTS = {HOST: "blas-all", LIBRARY: "library", RESIDENT: "packs"}
# Launch parameters that `effects` looks at.
PARAMETERS = [axis for axis in AXES if axis != "host_percent"]


def cell(kernel: str, n: int, seconds: float, **other: Any) -> dict[str, Any]:
    rate = 16e-9 * n / seconds
    found = {
        "kernel": kernel,
        "dtype": "double",
        "variant": VARIANTS.get(kernel, "pinned-pooled"),
        "width": n,
        "status": "ok",
        "median_s": seconds,
        "bandwidth_gbs": rate,
        "bandwidth_low_gbs": 0.9 * rate,
        "bandwidth_high_gbs": 1.1 * rate,
        "copy_gbs": 12.5,
        "streams": 1,
        "min_per_stream": 4096,
        "blocks_per_stream": 32,
        "threads": 256,
        "chunk": 0,
        "host_percent": 0,
        **other,
    }
    return {**found, "cell_key": str(sorted((k, str(v)) for k, v in found.items()))}


def table(*cells: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(cells)


def host_and_device(host: float, device: float, start: float) -> pd.DataFrame:
    """Seconds of an element on either, and those that the device takes for nothing."""
    return table(
        *(cell(HOST, n, host * n) for n in LENGTHS),
        *(cell(STREAMED, n, start + device * n) for n in LENGTHS),
    )


def test_the_device_pays_from_where_its_start_is_made_up_for() -> None:
    # Equal at n = 500.
    cells = host_and_device(host=2.0, device=1.0, start=500.0)
    (found,) = crossovers(cells)
    assert (found.dtype, found.variant, found.n) == ("double", "pinned-pooled", 1024)
    assert found.at == 4096
    assert found.ratio == pytest.approx(2 * 4096 / (500 + 4096))
    # The fastest way on the host is what must be beaten.
    quick = table(*(cell(HOST, n, 0.5 * n, variant="blas-one") for n in LENGTHS))
    assert crossovers(pd.concat([cells, quick]))[0].n is None
    # A length after which the host wins again does not count.
    cells = host_and_device(host=2.0, device=1.0, start=0.0)
    again = (cells["kernel"] == HOST) & (cells["width"] == 1024)
    cells.loc[again, "median_s"] = 1.0
    assert crossovers(cells)[0].n == 4096


def test_a_device_that_never_pays_has_no_length() -> None:
    cells = host_and_device(host=1.0, device=4.0, start=1.0)
    # What is shared with the host, at fault or of no elements says nothing of the device.
    more = table(
        *(cell(STREAMED, 4096, 1.0, **other) for other in ({"host_percent": 100}, {"status": "x"})),
        *(cell(kernel, 0, 1.0) for kernel in (STREAMED, HOST)),
    )
    for every in (cells, pd.concat([cells, more])):
        (found,) = crossovers(every)
        assert found.n is None
        assert found.ratio == pytest.approx(4096 / (1 + 4 * 4096))
    # Without the host there is nothing to compare with.
    assert crossovers(table(cell(STREAMED, 64, 1.0))) == []


def test_one_way_on_the_host_is_beaten_from_a_length_of_its_own() -> None:
    cells = host_and_device(host=2.0, device=1.0, start=500.0)
    slow = table(*(cell(HOST, n, 100.0 * n, variant="naive") for n in LENGTHS))
    both = pd.concat([cells, slow])
    (fastest_way,), (loop,), (blas,) = (crossovers(both, a) for a in (None, "naive", "blas-all"))
    assert (fastest_way.against, fastest_way.n) == (None, 1024)
    assert (loop.against, loop.n) == ("naive", 64)
    assert loop.ratio == pytest.approx(100 * 4096 / (500 + 4096))
    assert (blas.n, blas.ratio, blas.at) == (fastest_way.n, fastest_way.ratio, fastest_way.at)
    assert crossovers(both, "blas-one") == []


TIMES = st.lists(st.integers(1, 50), min_size=4, max_size=4)


@given(device=TIMES, one=TIMES, other=TIMES)
def test_the_fastest_way_is_no_easier_to_beat_than_any_other(
    device: list[int], one: list[int], other: list[int]
) -> None:
    cells = table(
        *(cell(STREAMED, n, t) for n, t in zip(LENGTHS, device, strict=True)),
        *(cell(HOST, n, t, variant="naive") for n, t in zip(LENGTHS, one, strict=True)),
        *(cell(HOST, n, t, variant="blas-one") for n, t in zip(LENGTHS, other, strict=True)),
    )
    (hardest,) = crossovers(cells)
    times = dict(zip(LENGTHS, device, strict=True))
    for against, host in (("naive", one), ("blas-one", other)):
        (found,) = crossovers(cells, against)
        here = dict(zip(LENGTHS, host, strict=True))
        faster = [n for n in LENGTHS if all(times[m] < here[m] for m in LENGTHS if m >= n)]
        assert found.n == min(faster, default=None)
        assert found.ratio == pytest.approx(max(here[n] / times[n] for n in LENGTHS))
        assert hardest.ratio <= found.ratio
        assert hardest.n is None or (found.n is not None and found.n <= hardest.n)


def shared_cells(times: dict[int, float], n: int = 64, **other: Any) -> list[dict[str, Any]]:
    """Cells whose time depends on the share of the host."""
    return [cell(STREAMED, n, t, host_percent=p, **other) for p, t in times.items()]


def test_the_split_is_that_at_which_both_finish_together() -> None:
    (found,) = splits(table(*shared_cells({0: 4.0, 50: 2.1, 75: 1.1, 80: 0.9, 100: 1.0})))
    assert found.predicted == pytest.approx(80.0)
    assert (found.swept, found.n) == (80, 64)
    assert found.gain == pytest.approx(1.0 / 0.9)
    # Both rates together take 1 / (1/4 + 1/1) s.
    assert found.reached == pytest.approx(0.8 / 0.9)
    assert found.loss == 0
    # Predicted are 80 %; 75 % is swept next to it, and 50 % is better.
    (found,) = splits(table(*shared_cells({0: 4.0, 50: 0.5, 75: 0.6, 100: 1.0})))
    assert found.swept == 50
    assert found.loss == pytest.approx(0.2)
    assert found.gain == pytest.approx(2.0)


def test_only_the_longest_length_is_split_and_with_both_ends_and_something_between() -> None:
    cells = shared_cells({0: 4.0, 50: 2.0, 100: 1.0})
    assert splits(table(*cells)) == splits(table(*cells, *shared_cells({50: 0.1}, 32)))
    assert splits(table(*cells, *shared_cells({50: 9.0}, 128))) == []
    for lacking in ({0: 1.0, 50: 1.0}, {50: 1.0, 100: 1.0}, {0: 1.0, 100: 1.0}):
        assert splits(table(*shared_cells(lacking))) == []


@given(
    times=st.dictionaries(st.integers(1, 99), st.floats(0.01, 100), min_size=1, max_size=5),
    device=st.floats(0.01, 100),
    host=st.floats(0.01, 100),
)
def test_no_share_but_one_faster_than_both_rates_together_reaches_more_than_all(
    times: dict[int, float], device: float, host: float
) -> None:
    every = {0: device, **times, 100: host}
    (found,) = splits(table(*shared_cells(every)))
    # At the predicted split both sides take equally long.
    share = found.predicted / 100
    assert share * host == pytest.approx((1 - share) * device)
    best, both = min(every.values()), 1 / (1 / device + 1 / host)
    assert every[found.swept] == best
    assert (found.reached > 1) == (best < both)
    assert found.loss >= 0
    assert found.gain >= 1
    # Sharing at best doubles the speed of the faster side: neither side slows the other down.
    assert found.gain <= 2 * max(1.0, found.reached) * (1 + 1e-12)


def test_effects_compare_the_best_that_each_value_allows() -> None:
    times = {(1, 256): 3.0, (1, 1024): 2.0, (4, 256): 1.0, (4, 1024): 5.0}
    cells = table(
        *(cell(STREAMED, 64, t, streams=s, threads=threads) for (s, threads), t in times.items()),
        # At a length with fewer parameters nothing is said.
        cell(STREAMED, 32, 0.1, streams=1),
        cell(STREAMED, 128, 0.1, streams=1),
        cell(STREAMED, 128, 0.3, streams=4),
    )
    streams, threads = effects(cells)
    assert (streams.axis, streams.values, streams.best) == ("streams", (1, 4), 4)
    assert streams.factor == pytest.approx(2.0)
    assert (threads.axis, threads.best, threads.factor) == ("threads", 256, pytest.approx(2.0))
    assert {e.n for e in (streams, threads)} == {64}
    # 3 and 5/2 times as long between the values at either value of the other.
    assert streams.typical == pytest.approx((3.0 + 2.5) / 2)
    assert threads.typical == pytest.approx((1.5 + 5.0) / 2)


def test_effects_stand_for_the_shortest_and_the_longest_of_the_lengths_swept_most() -> None:
    cells = table(
        *(
            cell(STREAMED, n, 1.0 + streams / n, streams=streams, threads=threads)
            for n, streams, threads in itertools.product((64, 128, 256), (1, 4), (256, 1024))
        ),
        *(cell(STREAMED, n, 1.0 + s, streams=s) for n in (32, 512) for s in (1, 4)),
    )
    assert [(e.n, e.axis) for e in effects(cells)] == [
        (64, "streams"),
        (64, "threads"),
        (256, "streams"),
        (256, "threads"),
    ]


def test_a_fast_cell_of_a_sweep_that_does_not_cross_makes_no_value_look_good() -> None:
    # The share of the host is no effect.
    swept = [
        cell(STREAMED, 64, seconds + percent, streams=streams, host_percent=percent)
        for streams, seconds in ((1, 2.0), (4, 4.0))
        for percent in (0, 50)
    ]
    more = [
        # Of another sweep, at other threads and chunks, with one of the values and with a third.
        cell(STREAMED, 64, 0.1, streams=4, threads=1024, chunk=32),
        cell(STREAMED, 64, 0.1, streams=16, threads=512, chunk=64),
    ]
    assert effects(table(*swept)) == effects(table(*swept, *more))
    (only,) = effects(table(*swept))
    assert (only.axis, only.values, only.best) == ("streams", (1, 4), 1)
    assert only.factor == pytest.approx(2.0)
    assert only.typical == pytest.approx((2.0 + 54 / 52) / 2)


GRID = [
    dict(zip(PARAMETERS, point, strict=True))
    for point in itertools.product((1, 4, 64), (1,), (8, 32), (64, 256), (0,))
]


@given(times=st.dictionaries(st.sampled_from(range(len(GRID))), st.floats(0.1, 10), min_size=1))
def test_values_are_compared_where_all_of_them_were_swept_and_nowhere_else(
    times: dict[int, float],
) -> None:
    cells = table(*(cell(STREAMED, 64, t, **GRID[i]) for i, t in times.items()))
    by_point = {tuple(GRID[i].values()): t for i, t in times.items()}
    for effect in effects(cells):
        at = PARAMETERS.index(effect.axis)
        found: dict[tuple[int, ...], dict[int, float]] = {}
        for point, time in by_point.items():
            if point[at] in effect.values:
                found.setdefault(point[:at] + point[at + 1 :], {})[point[at]] = time
        whole = [row for row in found.values() if len(row) == len(effect.values)]
        assert len(effect.values) > 1
        assert whole, "nothing is compared with what was measured elsewhere"
        best = {v: min(row[v] for row in whole) for v in effect.values}
        assert best[effect.best] == min(best.values())
        assert effect.factor == pytest.approx(max(best.values()) / min(best.values()))
        ratios = [max(row.values()) / min(row.values()) for row in whole]
        assert effect.typical == pytest.approx(statistics.median(ratios))
    if len(times) == len(GRID):
        assert [e.axis for e in effects(cells)] == ["streams", "blocks_per_stream", "threads"]


def resident(n: int, seconds: float, **other: Any) -> dict[str, Any]:
    return cell(RESIDENT, n, seconds, **{"threads": 256, "grid": 132, "unroll": 4, **other})


def test_of_data_on_the_device_the_fastest_launch_stands_for_each_length() -> None:
    cells = table(
        resident(1024, 3.0, grid=1),
        resident(1024, 2.0, grid=264, unroll=8),
        resident(64, 1.0, threads=512),
        resident(64, 0.1, status="wrong_result"),
        resident(64, 5.0, dtype="float"),
        cell(LIBRARY, 1024, 4.0),
    )
    short, long, single = residents(cells)
    assert (single.dtype, single.n, single.library_gbs) == ("float", 64, None)
    assert (short.n, short.threads, short.gbs) == (64, 512, pytest.approx(16e-9 * 64))
    # The library was not measured at this length.
    assert short.library_gbs is None
    assert (long.n, long.threads, long.grid, long.unroll) == (1024, 256, 264, 8)
    assert long.library_gbs == pytest.approx(long.gbs / 2)
    assert long.low_gbs < long.gbs < long.high_gbs
    # Nor is a library compared with that failed, or that is alone.
    failed = cell(LIBRARY, 64, 0.5, status="launch_failed")
    assert [r.library_gbs for r in residents(table(resident(64, 1.0), failed))] == [None]
    assert residents(table(cell(LIBRARY, 64, 1.0), cell(STREAMED, 64, 1.0))) == []


def test_of_each_length_the_fastest_stands_in_the_plots() -> None:
    cells = table(
        cell(STREAMED, 64, 3e-3, streams=1),
        cell(STREAMED, 64, 2e-3, streams=4),
        cell(STREAMED, 64, 1e-3, host_percent=100),
        cell(STREAMED, 64, 1e-3, variant="pageable-pooled"),
        # Shorter than what was published.
        cell(STREAMED, 63, 1e-3),
        cell(STREAMED, 0, 1e-3),
        cell(HOST, 32, 1e-3),
        cell(SQUARE, 64, 1e-3),
        cell(HOST, 64, 5e-3),
        cell(HOST, 64, 4e-3, variant="naive"),
        cell(HOST, 128, 6e-3),
        cell(HOST, 128, 7e-3, variant="naive"),
    )
    found = plot_series(cells, "ms")
    host, ours = f"{FASTEST_HOST} (double)", "ours, pooled (double)"
    assert list(found.itertuples(index=False, name=None)) == [
        (ours, 64, 2.0),
        (host, 64, 4.0),
        (host, 128, 6.0),
    ]
    # Beside throughput over a link the host's own stands for nothing.
    rates = plot_series(cells, "GB/s")
    assert list(rates["series"]) == [ours]
    assert list(rates["value"]) == pytest.approx([16 * 64e-9 / 2e-3])


def test_beside_the_published_squares_stand_squares_alone() -> None:
    cells = table(
        cell(SQUARE, 64, 3e-3),
        cell(SQUARE, 64, 2e-3, streams=4),
        cell(SQUARE, 64, 1e-3, host_percent=50),
        cell(SQUARE, 64, 5e-3, variant="pinned-fresh", dtype="float"),
        cell(STREAMED, 64, 1e-3),
        cell(HOST, 64, 1e-3),
    )
    found = plot_series(cells, "ms", square=True)
    assert list(found.itertuples(index=False, name=None)) == [
        ("ours, as published (square) (float)", 64, 5.0),
        ("ours, pooled (square) (double)", 64, 2.0),
    ]
    assert plot_series(cells.iloc[4:], "ms", square=True).empty


def test_inputs_were_copied_at_the_highest_rate_beside_a_streamed_kernel() -> None:
    cells = table(
        cell(STREAMED, 64, 1.0, copy_gbs=12.0),
        cell(STREAMED, 128, 1.0, copy_gbs=None),
        cell(SQUARE, 128, 1.0, copy_gbs=13.0),
        # Within the device's memory.
        resident(128, 1.0, copy_gbs=3000.0),
    )
    assert copied_gbs(cells) == 13.0
    assert copied_gbs(cells[cells["kernel"] == RESIDENT]) is None
    assert page_of(cells[cells["copy_gbs"].isna()])["copied"] == "an unknown rate"


def test_of_equal_cells_always_the_same_is_taken() -> None:
    cells = table(*(cell(STREAMED, 64, 1.0, streams=s) for s in (4, 1, 2)))
    assert list(fastest(cells)["streams"]) == list(fastest(cells[::-1])["streams"])


SLIPS = [{"slip": "a", "published": "b", "corrected": "c", "why": "d"}]


def page_of(*tables: pd.DataFrame) -> Json:
    return dots_page(pd.concat(tables), SLIPS)


def test_the_page_tells_in_words_where_the_device_pays() -> None:
    cells = host_and_device(host=2.0, device=1.0, start=500.0)
    page = page_of(cells)
    (finding,) = page["findings"]
    assert "the device pays from n = 1024 on against the fastest way on the host" in finding
    assert "one core" not in finding
    assert page["copied"] == "12.5 GB/s"
    assert page["slips"] == SLIPS
    (never,) = page_of(host_and_device(host=1.0, device=4.0, start=1.0))["findings"]
    assert "the device pays at no length" in never
    # Equal at n = 250.
    one = table(*(cell(HOST, n, 3.0 * n, variant="blas-one") for n in LENGTHS))
    (finding,) = page_of(cells, one)["findings"]
    assert "from n = 1024 on against the fastest way" in finding
    assert finding.endswith("; against one core's BLAS from n = 256 on.")


def test_every_way_on_the_host_has_a_column_and_says_where_it_was_not_measured() -> None:
    fast = host_and_device(host=2.0, device=1.0, start=500.0)
    others = table(
        *(cell(STREAMED, n, 9.0 * n, variant="pageable-fresh") for n in LENGTHS),
        *(cell(HOST, n, 10.0 * n, variant="naive") for n in LENGTHS),
    )
    rows = page_of(fast, others)["crossovers"]
    assert [(r["dtype"], r["variant"]) for r in rows] == [
        ("double", "pageable-fresh"),
        ("double", "pinned-pooled"),
    ]
    # One loop; BLAS on one core, which is missing; the fastest, which is BLAS on all.
    (loop, one, best), (pooled_loop, _, pooled_best) = (r["against"] for r in rows)
    assert loop.startswith("n ≥ 64; 1.11 at ")
    assert one == "not measured"
    assert best.startswith("never; 0.222 at ")
    assert pooled_loop == "n ≥ 64; 8.91 at 4096"
    assert pooled_best == "n ≥ 1024; 1.78 at 4096"


def test_headlines_speak_of_pinned_memory_and_a_pool_only() -> None:
    every = page_of(
        *(
            host_and_device(host=2.0, device=1.0, start=500.0).assign(variant=variant)
            for variant in ("pinned-fresh", "pageable-pooled", "pageable-fresh")
        ),
        table(*shared_cells({0: 4.0, 50: 0.9, 100: 1.0}, 8192, variant="pinned-fresh")),
    )
    assert {r["variant"] for r in every["crossovers"]} >= {"pinned-fresh", "pageable-pooled"}
    assert [s["variant"] for s in every["splits"]] == ["pinned-fresh"]
    assert every["findings"] == []


def shared(times: dict[int, float]) -> tuple[str, Json]:
    """The sentence and the row of one split."""
    page = page_of(table(*shared_cells(times)))
    (finding,), (row,) = page["findings"], page["splits"]
    return finding, row


def test_a_share_of_the_host_that_pays_is_told_with_what_was_predicted() -> None:
    finding, row = shared({0: 4.0, 50: 2.1, 75: 1.1, 80: 0.9, 100: 1.0})
    assert "best with 80 % on the host (the rates alone predict 80 %)" in finding
    assert "1.11 times the faster side alone; both at once reach 89 % of" in finding
    assert row | {"dtype": "double", "variant": "pinned-pooled", "n": "64"} == row
    assert (row["predicted"], row["swept"], row["gain"]) == ("80 %", "80 %", "1.11")
    assert (row["loss"], row["reached"]) == ("0 %", "89 %")


@pytest.mark.parametrize(("device", "host", "side"), [(1.0, 2.0, "device"), (2.0, 1.0, "host")])
def test_a_host_that_had_better_leave_all_or_nothing_is_told_so(
    device: float, host: float, side: str
) -> None:
    finding, _ = shared({0: device, 50: 1.5, 100: host})
    assert finding.endswith(f"n = 64: no share that was swept is faster than the {side} alone.")


def test_effects_stand_in_one_row_for_each_length_and_empty_where_none_was_swept() -> None:
    page = page_of(
        table(
            *(
                cell(STREAMED, n, float(s), streams=s, variant=v)
                for n in (64, 128)
                for s in (1, 4)
                for v in ("pinned-pooled", "pinned-fresh")
            ),
            *(cell(STREAMED, 64, t / 2.0, threads=t, variant="pageable-fresh") for t in (2, 3)),
        )
    )
    assert page["axes"] == ["streams", "threads"]
    assert page["swept"] == ["streams (1, 4)", "threads (2, 3)"]
    rows = [(e["variant"], e["n"], e["cells"]) for e in page["effects"]]
    assert rows == [
        ("pageable-fresh", "64", ["", "2 (+50 %, +50 %)"]),
        ("pinned-fresh", "64", ["1 (+300 %, +300 %)", ""]),
        ("pinned-fresh", "128", ["1 (+300 %, +300 %)", ""]),
        ("pinned-pooled", "64", ["1 (+300 %, +300 %)", ""]),
        ("pinned-pooled", "128", ["1 (+300 %, +300 %)", ""]),
    ]


def test_the_page_holds_what_is_on_the_device_against_the_library() -> None:
    streamed = cell(STREAMED, 64, 1.0)
    alone = page_of(table(streamed, resident(64, 64e-9), resident(128, 64e-9)))
    assert [(r["n"], r["library"], r["ratio"]) for r in alone["residents"]] == [
        ("64", "not measured", ""),
        ("128", "not measured", ""),
    ]
    assert alone["findings"] == ["Dot product of data on the device, double, n = 128: 32.0 GB/s."]
    both = page_of(table(streamed, resident(64, 64e-9), cell(LIBRARY, 64, 128e-9)))
    (row,) = both["residents"]
    assert row["launch"] == "132 × 256, 4 packs"
    assert (row["gbs"], row["library"]) == ("16.0 GB/s [14.4, 17.6]", "8.00 GB/s")
    (finding,) = both["findings"]
    assert finding.endswith("n = 64: 16.0 GB/s, 2.00 x cuBLAS.")


def test_the_record_of_an_h200_makes_a_whole_page(tmp_path: Path) -> None:
    folder = ROOT / "reports/reference/nvidia-h200"
    aggregate(sorted(folder.glob("dot_*/*/*.parquet")), tmp_path / "dataset")
    slips = json.loads((ROOT / "reports/chapters/streamed_dot/published/slips.json").read_text())
    page = dots_page(read_cells(tmp_path / "dataset"), slips)
    for dtype in ("float", "double"):
        told = [f for f in page["findings"] if f", {dtype}, n =" in f or f", {dtype}:" in f]
        assert len(told) == 3
    assert {len(e["cells"]) for e in page["effects"]} == {len(page["axes"])}
    sweeps = yaml.safe_load((ROOT / "config/dots.yaml").read_text())["kernels"]
    swept = {str(n) for n in sweeps["dot_streamed_parameters"]["sizes"]}
    assert {e["n"] for e in page["effects"] if e["variant"] == "pinned-pooled"} == swept
    assert "not measured" not in {r["library"] for r in page["residents"]}


def test_without_streamed_cells_there_is_no_page() -> None:
    cells = table(cell(HOST, 64, 1.0), resident(64, 1.0))
    measured = Measured(cells, [], [], {}, ROOT / "reports/chapters/streamed_dot", {}, {})
    assert page(measured) == Page(None)
