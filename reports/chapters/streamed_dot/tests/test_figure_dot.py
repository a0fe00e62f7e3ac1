"""The dot-product figure: readable with and without ours, its findings right, its lines drawn."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT
from gpushmoo.figures.style import OKABE_ITO
from matplotlib.figure import Figure
from streamed_dot.analysis import PLOTS, read_dot
from streamed_dot.figure_dot import dot
from test_figures import assert_readable, legend_of, note_of

FOLDER = ROOT / "reports/chapters/streamed_dot/published"
NONE = pd.DataFrame({"series": [], "n": [], "value": []})
LINES = {
    "PCI-Express 3.0 x16, 15.5 GB/s": 15.5,
    "device to host, 11.8 GB/s": 11.8,
    "host to device, 12.6 GB/s": 12.6,
}


def measured(plot: str) -> pd.DataFrame:
    """Four series of a link of 50 GB/s and of memory of 3 TB/s."""
    square = " (square)" if plot.endswith("_square") else ""
    rows = []
    for dtype, itemsize in (("double", 8), ("float", 4)):
        for way, gbs in (("streams", 50.0), ("in device memory", 3000.0)):
            for n in (2**e for e in range(6, 31, 3)):
                size = n * itemsize * (1 if square else 2)
                seconds = 2e-5 + size / gbs / 1e9
                value = seconds * 1e3 if PLOTS[plot].unit == "ms" else size / seconds / 1e9
                rows.append({"series": f"{way}{square} ({dtype})", "n": n, "value": value})
    return pd.DataFrame(rows)


def caption_of(plot: str, ours: pd.DataFrame, svg: Path) -> str:
    dot(read_dot(FOLDER, plot), ours, plot, svg)
    return note_of(svg)["caption"]


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("with_ours", [False, True])
def test_every_plot_is_readable(
    plot: str, with_ours: bool, drawn: list[Figure], tmp_path: Path
) -> None:
    ours = measured(plot) if with_ours else NONE
    dot(read_dot(FOLDER, plot), ours, plot, tmp_path / "a.svg")
    figure = drawn[0]
    assert_readable(figure)
    (ax,) = figure.axes
    assert ax.get_xscale() == "log"
    assert PLOTS[plot].unit in ax.get_ylabel()
    lines = {str(m.get_label()): m.get_ydata()[0] for m in ax.lines if m.get_label() in LINES}
    assert lines == (LINES if PLOTS[plot].unit == "GB/s" else {})
    assert set(lines) | set(ours["series"]) <= set(legend_of(figure))
    bright = [line for line in ax.lines if line.get_color() in OKABE_ITO]
    assert [line.get_label() for line in bright] == list(ours["series"].unique())
    assert {line.get_linestyle() for line in bright} <= {"-"}
    published = [line for line in ax.lines if str(line.get_label()).endswith(", published")]
    assert {line.get_linestyle() for line in published} == {"--"}
    looks = {(line.get_color(), line.get_marker()) for line in published}
    assert len(looks) == len(published) == (4 if PLOTS[plot].unit == "ms" else 2)
    if plot == "running_time_square" and not with_ours:
        # A short axis has several numbers.
        low, high = ax.get_ylim()
        assert [t for t in ax.get_yticks() if low <= t <= high] == [2, 5, 10, 20, 50, 100, 200]


@pytest.mark.usefixtures("drawn")
def test_findings_on_times(tmp_path: Path) -> None:
    caption = caption_of("running_time", NONE, tmp_path / "a.svg")
    assert "AVX (double) is faster than CUDA (double) at every n from 2⁶ on" in caption
    assert "takes 51 % of its time at n = 2²⁷" in caption
    assert "No CUDA time is below 1.97 ms" in caption
    squares = caption_of("running_time_square", NONE, tmp_path / "b.svg")
    said = "CUDA (square) (float) is faster than CUDA (float) at every n from 2¹⁰ on"
    assert said in squares
    # A series that falls behind is not called faster.
    published = read_dot(FOLDER, "running_time")
    slow = (published["series"] == "AVX (float)") & (published["n"] == 2**27)
    published.loc[slow, "value"] = 1e3
    dot(published, NONE, "running_time", tmp_path / "a.svg")
    caption = note_of(tmp_path / "a.svg")["caption"]
    assert "AVX (double) is faster" in caption
    assert "AVX (float) is faster" not in caption


@pytest.mark.usefixtures("drawn")
def test_findings_on_throughputs(tmp_path: Path) -> None:
    caption = caption_of("throughput", NONE, tmp_path / "a.svg")
    double = "CUDA (double) reaches 12.0 GB/s at n = 2²⁷, 77 % of PCI-Express 3.0 x16; it stays"
    assert f"{double} above half of that line from n = 2²² on and above the dev" in caption
    single = "CUDA (float) reaches 11.8 GB/s at n = 2²⁷, 76 % of PCI-Express 3.0 x16; it stays"
    assert f"{single} above half of that line from n = 2²³ on. " in caption
    assert caption.count("above the device-to-host line from n = 2²⁶ on") == 1
    squares = caption_of("throughput_square", NONE, tmp_path / "b.svg")
    assert "CUDA (square) (double) reaches 11.8 GB/s at n = 2²⁶" in squares
    assert "above the device-to-host line" not in squares


@pytest.mark.usefixtures("drawn")
def test_ours_are_compared_with_the_same_type_and_product(tmp_path: Path) -> None:
    """Times at the longest array that both have, throughputs each at its best."""
    ours = pd.DataFrame(
        {
            "series": ["streams (float)"] * 3 + ["streams (square) (float)", "streams"],
            "n": [2**26, 2**27, 2**28, 2**27, 2**27],
            "value": [10.0, 46.875 / 2, 50.0, 1.0, 1.0],
        }
    )
    times = caption_of("running_time", ours, tmp_path / "a.svg")
    told = "streams (float) takes 23.4 ms at n = 2²⁷, 2.0 times the speed of AVX (float), "
    assert f"{told}3.9 times the speed of CUDA (float). " in times
    assert "streams (square) (float) takes 1.00 ms at n = 2²⁷. " in times
    assert times.endswith("streams takes 1.00 ms at n = 2²⁷.")
    rates = caption_of("throughput", ours, tmp_path / "b.svg")
    assert "streams (float) reaches 50.0 GB/s at n = 2²⁸, 4.2 times the best of CUDA (f" in rates
    # Lengths that the document has not are told alone.
    ours = pd.DataFrame({"series": ["streams (float)"], "n": [1_000_003], "value": [2.0]})
    caption = caption_of("running_time", ours, tmp_path / "a.svg")
    assert caption.endswith("streams (float) takes 2.00 ms at n = 1000003.")


def test_same_points_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        caption_of("throughput", measured("throughput"), tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
