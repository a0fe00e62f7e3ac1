"""The published dot-product series: every printed digit, and what the numbers say of each other."""

from __future__ import annotations

import csv
import hashlib
import math
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import ROOT
from gpushmoo.analysis.published_dot import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE_GBS,
    PCIE,
    PLOTS,
    REFERENCES,
    read_dot,
)
from printed_dot import HELD

FOLDER = ROOT / "reports/published/dot"
LENGTHS = [2**e for e in range(6, 28)]
ITEMSIZE = {"double": 8, "float": 4}
# Relative; what a few roundings of doubles may add up to.
ROUNDING = 4 * 2.0**-52
MEASURED = [(p, s) for p, s in HELD if s not in REFERENCES]
TIMES = [(p, s) for p, s in MEASURED if PLOTS[p].unit == "ms"]


def printed(plot: str) -> dict[str, list[tuple[str, str]]]:
    """The series of a CSV with x and y as text."""
    with (FOLDER / f"{plot}.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    series: dict[str, list[tuple[str, str]]] = {}
    for name, x, y in rows:
        series.setdefault(name, []).append((x, y))
    return series


def curve(plot: str, series: str) -> dict[int, float]:
    """Values by n."""
    rows = read_dot(FOLDER, plot)
    rows = rows[rows["series"] == series]
    return dict(zip(rows["n"], rows["value"], strict=True))


# Digits


def test_every_plot_has_its_series_in_the_printed_order() -> None:
    found = [(plot, series) for plot in PLOTS for series in printed(plot)]
    assert found == list(HELD)
    assert sorted(p.stem for p in FOLDER.glob("*.csv")) == sorted(PLOTS)


@pytest.mark.parametrize(("plot", "series"), HELD)
def test_a_series_is_printed_so(plot: str, series: str) -> None:
    points, held = printed(plot)[series], HELD[plot, series]
    values = [float(y) for _, y in points]
    assert len(points) == held.points
    assert (int(points[0][0]), int(points[-1][0])) == (held.first_x, held.last_x)
    assert (values[0], values[-1], max(values)) == (held.first, held.last, held.largest)
    assert math.fsum(values) == held.total
    text = "\n".join(f"{x},{y}" for x, y in points)
    assert hashlib.sha256(text.encode()).hexdigest() == held.sha256


@pytest.mark.parametrize(("plot", "series"), HELD)
def test_reading_keeps_every_digit_and_counts_n(plot: str, series: str) -> None:
    held = HELD[plot, series]
    values = curve(plot, series)
    assert math.fsum(values.values()) == held.total
    two = 2 if plot == "throughput" else 1
    assert (min(values) * two, max(values) * two) == (held.first_x, held.last_x)


@pytest.mark.parametrize(("plot", "series"), MEASURED)
def test_every_power_of_two_is_measured(plot: str, series: str) -> None:
    values = curve(plot, series)
    assert list(values) == LENGTHS
    assert all(v > 0 for v in values.values())


def test_lines_are_told_from_measurements() -> None:
    for plot in PLOTS:
        rows = read_dot(FOLDER, plot)
        lines = {} if plot.startswith("running") else {PCIE: 15.5, DEVICE_TO_HOST: 11.8}
        told = rows[rows["reference"]]
        assert dict(zip(told["series"], told["value"], strict=True)) == lines
        assert set(told["n"]) <= {LENGTHS[0], LENGTHS[-1]}


def test_columns_of_another_plot_are_refused(tmp_path: Path) -> None:
    (tmp_path / "throughput.csv").write_text((FOLDER / "throughput_square.csv").read_text())
    with pytest.raises(ValueError, match="has the columns series, n, throughput_gbs"):
        read_dot(tmp_path, "throughput")


# Between the plots


@pytest.mark.parametrize("dtype", ITEMSIZE)
@pytest.mark.parametrize(("square", "arrays"), [("", 2), (" (square)", 1)])
def test_throughput_is_bytes_over_time(dtype: str, square: str, arrays: int) -> None:
    """Of both arrays for the product, of one for the squares; a GB is 10^9 bytes."""
    suffix = "_square" if square else ""
    series = f"CUDA{square} ({dtype})"
    time_ms, gbs = curve(f"running_time{suffix}", series), curve(f"throughput{suffix}", series)
    for n in LENGTHS:
        told = arrays * n * ITEMSIZE[dtype] / 1e9 / (time_ms[n] / 1e3)
        assert gbs[n] == pytest.approx(told, rel=ROUNDING, abs=0)


@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_the_product_is_printed_twice_and_measured_once(dtype: str) -> None:
    series = f"CUDA ({dtype})"
    assert printed("running_time")[series] == printed("running_time_square")[series]


# Slips that the README names


def repetitions(time_ms: float, unit_ms: Fraction, units: range) -> bool:
    """Whether so many units of time over a whole number of repetitions print as `time_ms`."""
    exact = Fraction(time_ms)
    for count in units:
        runs = round(count * unit_ms / exact)
        if runs and abs(count * unit_ms / runs / exact - 1) < ROUNDING:
            return True
    return False


@pytest.mark.parametrize(("plot", "series"), TIMES)
def test_two_clocks(plot: str, series: str) -> None:
    """AVX, and CUDA at the shortest array alone, in ticks of 1/64 s; the rest in 0.1 µs."""
    tick = Fraction(1000, 64)
    ticked = [n for n, t in curve(plot, series).items() if repetitions(t, tick, range(1, 52))]
    assert ticked == (LENGTHS if series.startswith("AVX") else LENGTHS[:1])


@pytest.mark.parametrize(("plot", "series"), [k for k in TIMES if "CUDA" in k[1]])
def test_cuda_times_are_tenths_of_microseconds_over_repetitions(plot: str, series: str) -> None:
    for n, time in curve(plot, series).items():
        counts = (Fraction(time) * runs * 10_000 for runs in range(1, 319))
        assert any(abs(c / round(c) - 1) < ROUNDING / 2 for c in counts), n


def test_only_the_longest_double_products_pass_the_drawn_line() -> None:
    over = {
        (series, n)
        for plot, series in MEASURED
        if plot.startswith("throughput")
        for n, value in curve(plot, series).items()
        if value > 11.8
    }
    assert over == {("CUDA (double)", 2**26), ("CUDA (double)", 2**27)}
    assert max(curve("throughput", "CUDA (double)").values()) < HOST_TO_DEVICE_GBS


def test_no_point_reaches_four_fifths_of_the_link() -> None:
    best = {s: max(curve(p, s).values()) for p, s in MEASURED if p.startswith("throughput")}
    assert {s: round(v / 15.5, 3) for s, v in best.items()} == {
        "CUDA (double)": 0.774,
        "CUDA (float)": 0.76,
        "CUDA (square) (double)": 0.759,
        "CUDA (square) (float)": 0.749,
    }


def test_the_text_counts_both_arrays_as_elements() -> None:
    time_ms = curve("running_time", "AVX (double)")
    gbs = {n: 2 * n * 8 / time_ms[n] / 1e6 for n in (2**20, 2**21)}
    assert gbs == pytest.approx({2**20: 28.30, 2**21: 22.37}, abs=0.005)


def test_float_is_not_faster_everywhere() -> None:
    double, single = (curve("running_time", f"CUDA ({d})") for d in ITEMSIZE)
    assert [n for n in LENGTHS if single[n] >= double[n]] == [2**14, 2**15, 2**16, 2**20]


def test_half_the_bytes_take_no_less_time_in_short_float_arrays() -> None:
    product, square = (curve("running_time_square", f"CUDA{s} (float)") for s in ("", " (square)"))
    assert [n for n in LENGTHS if square[n] >= product[n]] == [64, 128, 256, 512]


def falls(series: str) -> list[tuple[int, int]]:
    """Base-2 logarithms of the n that take over 5 % less time than n / 2, and the percent."""
    times = curve("running_time_square", series)
    drops = [(n, 1 - times[n] / times[m]) for m, n in pairwise(LENGTHS)]
    return [(n.bit_length() - 1, round(100 * d)) for n, d in drops if d > 0.05]


def test_longer_arrays_take_less_time_at_times() -> None:
    assert falls("CUDA (double)") == [(20, 9)]
    assert falls("CUDA (float)") == [(21, 6)]
    assert falls("CUDA (square) (double)") == [(8, 6), (12, 11), (19, 9)]
    assert falls("CUDA (square) (float)") == []


def test_avx_is_never_behind() -> None:
    for dtype in ITEMSIZE:
        avx, cuda = (curve("running_time", f"{k} ({dtype})") for k in ("AVX", "CUDA"))
        assert all(avx[n] < cuda[n] for n in LENGTHS)


@pytest.mark.parametrize(("plot", "series"), [k for k in TIMES if "CUDA" in k[1]])
def test_short_arrays_cost_what_does_not_depend_on_their_bytes(plot: str, series: str) -> None:
    times = curve(plot, series)
    short = [times[n] for n in LENGTHS if n <= 2**17]
    assert max(short) < 2 * min(short)
    assert 0.09 < 1 - times[64] / times[128] < 0.145


def test_squares_of_short_double_arrays_take_a_fifth_less() -> None:
    product, square = (curve("running_time_square", f"CUDA{s} (double)") for s in ("", " (square)"))
    saved = [1 - square[n] / product[n] for n in LENGTHS if n <= 512]
    assert (round(min(saved), 2), round(max(saved), 2)) == (0.15, 0.2)
