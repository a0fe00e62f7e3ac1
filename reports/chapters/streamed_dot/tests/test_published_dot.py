"""The published dot-product series: every printed digit, and what the numbers say of each other."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from conftest import ROOT
from streamed_dot.analysis import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE_GBS,
    PCIE,
    PLOTS,
    PRINTED_GBS,
    REFERENCES,
    read_dot,
)

FOLDER = ROOT / "reports/chapters/streamed_dot/published"
LENGTHS = [2**e for e in range(6, 28)]
ITEMSIZE = {"double": 8, "float": 4}
# Relative; what a few roundings of doubles may add up to.
ROUNDING = 4 * 2.0**-52
# As the document prints them: the first half of the SHA-256 of the lines ``x,y`` of a series.
HELD = {
    (plot, series): digest
    for plot, held in {
        "running_time": {
            "AVX (double)": "55f29df4a250c71cf370d6de9904513c",
            "AVX (float)": "27e3f6373d11df552e0ecd09999172a1",
            "CUDA (double)": "d2892700203c745d2ab4cf558568ad55",
            "CUDA (float)": "41180b9ef9a0cbaa3be78479bc44f4ff",
        },
        "throughput": {
            "PCI-Express 3.0 x16": "2b6b00b0cd7a2a859eec00ec7bf54f6f",
            "NVIDIA bandwidthtest.cu device-to-host": "751fe87563cd4cf75cfa2ac95fa7b8f2",
            "CUDA (double)": "7056580bef7ba0e731ea147e3369f084",
            "CUDA (float)": "df2b006f4755ad3f98b0cf44e62ce4c9",
        },
        "running_time_square": {
            "CUDA (double)": "d2892700203c745d2ab4cf558568ad55",
            "CUDA (float)": "41180b9ef9a0cbaa3be78479bc44f4ff",
            "CUDA (square) (double)": "f15172313364f4a251b2c0f94b986650",
            "CUDA (square) (float)": "a924961dc755fee706e5280e51ae02ab",
        },
        "throughput_square": {
            "PCI-Express 3.0 x16": "375ce00b1db36de47c918d93768a2d05",
            "NVIDIA bandwidthtest.cu device-to-host": "1995a6da2b90aba16516399e22901791",
            "CUDA (square) (double)": "27d32ebf3853386a1cb5d0523016ffc5",
            "CUDA (square) (float)": "36a2efc31ef48e508752ffd836fb0f2d",
        },
    }.items()
    for series, digest in held.items()
}
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
    """Published values of one series of a plot, by the length n of the vectors."""
    rows = read_dot(FOLDER, plot)
    rows = rows[rows["series"] == series]
    return dict(zip(rows["n"], rows["value"], strict=True))


# Digits


def test_every_digit_is_as_printed_and_read_by_the_length_n() -> None:
    assert [(plot, series) for plot in PLOTS for series in printed(plot)] == list(HELD)
    assert sorted(p.stem for p in FOLDER.glob("*.csv")) == sorted(PLOTS)
    for (plot, series), digest in HELD.items():
        points = printed(plot)[series]
        text = "\n".join(f"{x},{y}" for x, y in points)
        assert hashlib.sha256(text.encode()).hexdigest()[:32] == digest
        two = 2 if plot == "throughput" else 1
        values = curve(plot, series)
        assert {n * two: v for n, v in values.items()} == {int(x): float(y) for x, y in points}
        if series in REFERENCES:
            assert set(values.values()) == {{PCIE: 15.5, DEVICE_TO_HOST: 11.8}[series]}
        else:
            assert list(values) == LENGTHS


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


# What the slips rest on


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
    told = slip("Two clocks")
    assert numbers(told["slip"]) == [64, float(tick)]
    assert told["corrected"] == f"n = {LENGTHS[0]} apart"
    for n, time in curve(plot, series).items():
        counts = (Fraction(time) * runs * 10_000 for runs in range(1, 319))
        assert "AVX" in series or any(abs(c / round(c) - 1) < ROUNDING / 2 for c in counts), n


# Slips that the report prints

TOLD = json.loads((FOLDER / "slips.json").read_text())
SLIPS = TOLD["slips"]
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def slip(words: str) -> dict[str, str]:
    """The entry of SLIPS whose text begins with `words`."""
    (found,) = (s for s in SLIPS if s["slip"].startswith(words))
    return found


def remark(words: str) -> str:
    """The one remark, or its part up to a semicolon, that has these words."""
    (found,) = (p for r in TOLD["remarks"] for p in re.split("[;:] ", r) if words in p)
    return found


def powers(text: str) -> list[int]:
    """Every power of two in a text, such as 2¹⁷."""
    return [2 ** int(e.translate(SUPERSCRIPTS)) for e in re.findall("2([⁰¹²³⁴⁵⁶⁷⁸⁹]+)", text)]


def numbers(text: str) -> list[float]:
    """Every number in figures that has no exponent."""
    return [float(n) for n in re.findall(r"(?<![\d.])\d+(?:\.\d+)?(?!\.?\d|[⁰¹²³⁴⁵⁶⁷⁸⁹])", text)]


def test_slip_of_the_drawn_direction() -> None:
    told = slip("The line drawn in the throughput plots")
    drawn = set(curve("throughput", DEVICE_TO_HOST).values())
    assert [told["published"]] == [f"{v} GB/s" for v in drawn]
    assert told["corrected"] == f"{HOST_TO_DEVICE_GBS} GB/s"
    (line,) = drawn
    gbs = {s: curve(p, s) for p, s in MEASURED if p.startswith("throughput")}
    over = {n: v for n, v in gbs.pop("CUDA (double)").items() if v > line}
    assert max(v for values in gbs.values() for v in values.values()) <= line
    assert f"({' and '.join(f'{v:.3f}' for v in over.values())} GB/s)" in told["why"]
    assert powers(told["why"]) == list(over)
    # So the practical bandwidth is not exceeded.
    assert max(over.values()) < HOST_TO_DEVICE_GBS


@dataclass(frozen=True)
class Shares:
    """How the published code shares n elements out: packs of 4 and blocks are those of a stream."""

    packs: int
    blocks: int
    device: int
    host: int


def shares(n: int, most_streams: int = 64) -> Shares:
    """Of n > 0 elements, by the document's arithmetic and parameters."""
    least_per_stream, most_blocks, threads = 2**12, 32, 1024
    power = 2 ** (n.bit_length() - 1)
    streams = min(-(-power // least_per_stream), most_streams)
    per_stream = 2 ** ((power // streams).bit_length() - 1)
    packs, device = per_stream // 4, per_stream * streams
    return Shares(packs, min(-(-packs // threads), most_blocks), device, n - device)


def test_any_number_of_streams_shares_all_elements_out() -> None:
    for streams in range(1, 65):
        found = shares(1_000_003, streams)
        assert 0 < found.device <= 2**19
        assert found.device + found.host == 1_000_003


def test_slip_of_the_counted_elements() -> None:
    told = slip("Elements are counted once per pair")
    time_ms = curve("running_time", "AVX (double)")
    gbs = {n: 2 * n * 8 / time_ms[n] / 1e6 for n in LENGTHS}
    meant, longest = powers(told["corrected"])
    assert longest == LENGTHS[-1]
    # 2M are 2·2^20, 268M are 268·10^6.
    assert told["published"] == f"{2 * meant // 2**20}M, {2 * longest // 10**6}M"
    assert powers(told["why"]) == [meant, 2 * meant]
    assert numbers(told["why"]) == [round(gbs[n], 2) for n in powers(told["why"])]
    assert f"AVX's {gbs[meant]:.0f} GB/s" in told["slip"]
    assert round(gbs[2 * meant]) != round(gbs[meant])


def test_what_one_thread_of_avx_reaches() -> None:
    """At the longest arrays, and what all cores are said to: their times are not printed."""
    time_ms = curve("running_time", "AVX (double)")
    assert round(2 * LENGTHS[-1] * 8 / time_ms[LENGTHS[-1]] / 1e6, 1) == 24.7
    assert not any("multi" in series for _, series in HELD)
    # Eight channels of 3200 MT/s and 8 bytes have not enough.
    assert PRINTED_GBS["all cores"] > 8 * 3.2 * 8


def test_slip_of_the_link() -> None:
    told = slip("PCI-Express 3.0 x16 is given as")
    (line,) = set(curve("throughput", PCIE).values())
    assert told["published"] == f"{line} GB/s"
    lanes, rate, payload, coded, bits = numbers(told["why"])
    assert told["corrected"] == f"{lanes * rate * payload / coded / bits:.3f} GB/s"


def test_remark_on_the_limit() -> None:
    told = remark("no CUDA time even doubles")
    (longest,) = powers(told)
    start, growth, reached, told_line = numbers(told)
    assert (start, growth) == (LENGTHS[0], longest // LENGTHS[0])
    for plot, series in TIMES:
        if "CUDA" not in series:
            continue
        times = curve(plot, series)
        short = [times[n] for n in LENGTHS if n <= longest]
        assert max(short) < 2 * min(short), "none doubles"
    # With one length more one does: it is the longest of which that is true.
    more = [curve(p, s) for p, s in TIMES if "CUDA" in s]
    assert any(t[2 * longest] >= 2 * min(t.values()) for t in more)
    # Of the link's line, the higher of the two.
    best = max(v for p, s in MEASURED if "through" in p for v in curve(p, s).values())
    (line,) = set(curve("throughput", PCIE).values())
    assert told_line == line
    assert round(100 * best / line) == reached


def test_remarks_on_what_takes_longer() -> None:
    double, single = (curve("running_time", f"CUDA ({d})") for d in ITEMSIZE)
    longer = [n for n in LENGTHS if single[n] > double[n]]
    assert powers(remark("float takes longer than double")) == longer
    # Shares of the time of x · y that x · x saves.
    saved = {}
    for dtype in ITEMSIZE:
        product, square = (
            curve("running_time_square", f"CUDA{s} ({dtype})") for s in ("", " (square)")
        )
        saved[dtype] = {n: 1 - square[n] / product[n] for n in LENGTHS}
    longer = [n for n, share in saved["float"].items() if share < 0]
    first, last, least, most = numbers(remark("squares of floats"))
    assert (first, last) == (longer[0], longer[-1])
    percents = [100 * saved["double"][n] for n in longer]
    assert (round(min(percents)), round(max(percents))) == (least, most)
    assert "the host has no share" in remark("is a power of two")
    assert {shares(n).host for n in LENGTHS} == {0}


def test_remark_on_longer_arrays() -> None:
    told = remark("arrays of twice the length")
    drops = []
    for name in {s for p, s in TIMES if p == "running_time_square"}:
        times = curve("running_time_square", name)
        shorter = (1 - times[n] / times[m] for m, n in pairwise(LENGTHS))
        drops += [round(100 * drop) for drop in shorter if drop > 0.05]
    assert numbers(told) == [min(drops), max(drops)]
    assert len(drops) == {"three": 3, "four": 4, "five": 5, "six": 6}[told.split()[-2]]
    # Those of the host take longer at every place.
    for dtype in ITEMSIZE:
        times = curve("running_time", f"AVX ({dtype})")
        assert all(times[m] < times[n] for m, n in pairwise(LENGTHS))


def test_slip_of_the_shortest_arrays() -> None:
    told = slip("From 1 to 3 elements the published code launches a grid of 0 blocks")
    without = {n: shares(n) for n in range(1, 10_000) if shares(n).blocks == 0}
    assert list(without) == [1, 2, 3]
    assert {s.packs for s in without.values()} == {0}
    assert all(s.device > 0 for s in without.values()), "so their products are missing"
    assert f"n = 1, 2 and 3 the host adds {without[1].host}, {without[2].host} and " in told["why"]
    assert f"and {without[3].host}. The launch" in told["why"]


def test_slip_of_the_racing_lanes() -> None:
    """Lane t adds element t + OFFSET to its own, all 32 lanes in every step."""
    told = slip("Lanes of a warp race in reduce_warp")
    offsets, lanes = [32, 16, 8, 4, 2, 1], range(32)
    racing = [o for o in offsets if any(t + o in lanes for t in lanes)]
    assert f"In {len(racing)} of {len(offsets)} steps" in told["why"]
    assert max(lanes) + max(offsets) == 64 - 1, "the last element of the least shared memory"

    def summed(order: Iterable[int]) -> int:
        data = [2**e for e in range(64)]
        for offset in offsets:
            for lane in order:
                data[lane] += data[lane + offset]
        return data[0]

    # One lane after the other, as the code permits: which comes first decides what is summed.
    assert summed(lanes) == 2**64 - 1
    assert summed(lanes[::-1]) != 2**64 - 1


def test_slip_of_the_narrow_integers() -> None:
    told = slip("Lengths are kept in int")
    kind, name, one = re.findall(r"“(\w+) (\w+)=(1u)<<", told["slip"])[0]
    assert (kind, one) == ("int", "1u")
    (limit,) = powers(told["corrected"])
    assert told["corrected"].startswith("n < ")
    assert shares(limit - 1).device <= np.iinfo(np.int32).max
    assert np.uint32(limit).astype(np.int32) < 0
    negative, undefined = powers(told["why"])
    assert (negative, undefined) == (limit, 2 ** np.iinfo(np.uint32).bits)
    assert f"At n = 2³¹ {name} becomes negative" in told["why"]
