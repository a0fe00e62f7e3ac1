"""The published dot-product series: every printed digit, and what the numbers say of each other."""

import csv
import hashlib
import json
import re
from collections.abc import Iterable

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
# As the document prints them: the first half of the SHA-256 of the file.
HELD = {
    "running_time": "a978f001205fc346ae8f478acc91dfa1",
    "throughput": "360dd237651901418c3fd161b8b15de9",
    "running_time_square": "b7faf100eaa4883f5f396ee0d8e9bfde",
    "throughput_square": "d942c16cc2bb87eba9da329b3d57d407",
}


def printed(plot: str) -> dict[str, list[tuple[str, str]]]:
    """The series of a CSV with x and y as text."""
    with (FOLDER / f"{plot}.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    series: dict[str, list[tuple[str, str]]] = {}
    for name, x, y in rows:
        series.setdefault(name, []).append((x, y))
    return series


SERIES = [(plot, series) for plot in PLOTS for series in printed(plot)]


def curve(plot: str, series: str) -> dict[int, float]:
    """Published values of one series of a plot, by the length n of the vectors."""
    rows = read_dot(FOLDER, plot)
    rows = rows[rows["series"] == series]
    return dict(zip(rows["n"], rows["value"], strict=True))


def test_every_digit_is_as_printed_and_read_by_the_length_n() -> None:
    files = {file.stem: file.read_bytes() for file in FOLDER.glob("*.csv")}
    assert {name: hashlib.sha256(data).hexdigest()[:32] for name, data in files.items()} == HELD
    assert set(PLOTS) == set(HELD)
    for plot, series in SERIES:
        points = printed(plot)[series]
        two = 2 if plot == "throughput" else 1
        values = curve(plot, series)
        assert {n * two: v for n, v in values.items()} == {int(x): float(y) for x, y in points}
        if series in REFERENCES:
            assert set(values.values()) == {{PCIE: 15.5, DEVICE_TO_HOST: 11.8}[series]}
        else:
            assert list(values) == LENGTHS


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


SLIPS = json.loads((FOLDER / "slips.json").read_text())["slips"]
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def slip(words: str) -> dict[str, str]:
    """The entry of SLIPS whose text begins with `words`."""
    (found,) = (s for s in SLIPS if s["slip"].startswith(words))
    return found


def powers(text: str) -> list[int]:
    """Every power of two in a text, such as 2¹⁷."""
    return [2 ** int(e.translate(SUPERSCRIPTS)) for e in re.findall("2([⁰¹²³⁴⁵⁶⁷⁸⁹]+)", text)]


def test_slip_of_the_drawn_direction() -> None:
    told = slip("The line drawn in the throughput plots")
    drawn = set(curve("throughput", DEVICE_TO_HOST).values())
    assert [told["published"]] == [f"{v} GB/s" for v in drawn]
    assert told["corrected"] == f"{HOST_TO_DEVICE_GBS} GB/s"
    (line,) = drawn
    gbs = {s: curve(p, s) for p, s in SERIES if p.startswith("throughput") and s not in REFERENCES}
    over = {n: v for n, v in gbs.pop("CUDA (double)").items() if v > line}
    assert max(v for values in gbs.values() for v in values.values()) <= line
    assert f"({' and '.join(f'{v:.3f}' for v in over.values())} GB/s)" in told["why"]
    assert powers(told["why"]) == list(over)
    # So the practical bandwidth is not exceeded.
    assert max(over.values()) < HOST_TO_DEVICE_GBS


def test_what_one_thread_of_avx_reaches() -> None:
    """At the longest arrays, and what all cores are said to: their times are not printed."""
    time_ms = curve("running_time", "AVX (double)")
    assert round(2 * LENGTHS[-1] * 8 / time_ms[LENGTHS[-1]] / 1e6, 1) == 24.7
    assert not any("multi" in series for _, series in SERIES)
    # Eight channels of 3200 MT/s and 8 bytes have not enough.
    assert PRINTED_GBS["all cores"] > 8 * 3.2 * 8


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


def shares(n: int, most_streams: int) -> tuple[int, int]:
    """Of n > 0 elements the device's and the host's, by the document's arithmetic."""
    power = 2 ** (n.bit_length() - 1)
    streams = min(-(-power // 2**12), most_streams)
    device = streams * 2 ** ((power // streams).bit_length() - 1)
    return device, n - device


def test_any_number_of_streams_shares_all_elements_out() -> None:
    for streams in range(1, 65):
        device, host = shares(1_000_003, streams)
        assert 0 < device <= 2**19
        assert device + host == 1_000_003
