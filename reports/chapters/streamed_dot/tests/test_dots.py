"""What the sweeps of dot products say, on the page and beside the published plots."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT, record
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.figures.style import OKABE_ITO
from gpushmoo.report.pages import Measured, Page
from gpushmoo.report.tables import Json
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import read_table
from matplotlib.figure import Figure
from streamed_dot.analysis import (
    ADDED,
    FASTEST_HOST,
    HOST,
    LIBRARY,
    OVERLAPPED,
    PLOTS,
    RESIDENT,
    SQUARE,
    STREAMED,
    Law,
    copied_gbs,
    fastest,
    laws,
    plot_series,
    read_dot,
    residents,
)
from streamed_dot.figure_dot import dot
from streamed_dot.figure_studies import rivals
from streamed_dot.pages import dots_page, page
from streamed_dot.rivals import RIVALS_SCHEMA
from test_figures import assert_readable, legend_of, note_of

VARIANTS = {HOST: "blas-all", LIBRARY: "library", RESIDENT: "packs"}


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
        "memcpy_gbs": 12.5,
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
        # As published is with the document's streams alone.
        cell(STREAMED, 64, 1e-3, variant="published", streams=1),
        # Shorter than what was published.
        cell(STREAMED, 63, 1e-3),
        cell(STREAMED, 0, 1e-3),
        cell(HOST, 32, 1e-3),
        cell(SQUARE, 64, 1e-3, host_percent=50),
        cell(SQUARE, 64, 2e-3, streams=4),
        cell(SQUARE, 64, 5e-3, variant="published", dtype="float", streams=64),
        cell(HOST, 64, 5e-3),
        cell(HOST, 64, 4e-3, variant="naive"),
        cell(HOST, 128, 6e-3),
        cell(HOST, 128, 7e-3, variant="naive"),
    )

    def plotted(unit: str, square: bool = False) -> list[Any]:
        found = plot_series(cells, unit, square=square)
        return list(found.itertuples(index=False, name=None))

    host, ours = f"{FASTEST_HOST} (double)", "ours, pooled (double)"
    assert plotted("ms") == [(ours, 64, 2.0), (host, 64, 4.0), (host, 128, 6.0)]
    # Beside throughput over a link the host's own stands for nothing.
    assert plotted("GB/s") == [(ours, 64, pytest.approx(16 * 64e-9 / 2e-3))]
    assert plotted("ms", square=True) == [
        ("ours, as published (square) (float)", 64, 5.0),
        ("ours, pooled (square) (double)", 64, 2.0),
    ]
    equal = table(*(cell(STREAMED, 64, 1.0, streams=s) for s in (4, 1, 2)))
    assert list(fastest(equal)["streams"]) == list(fastest(equal[::-1])["streams"])


def test_inputs_were_copied_at_the_highest_rate_beside_a_streamed_kernel() -> None:
    cells = table(
        cell(STREAMED, 64, 1.0, memcpy_gbs=12.0),
        cell(STREAMED, 128, 1.0, memcpy_gbs=None),
        cell(SQUARE, 128, 1.0, memcpy_gbs=13.0),
        # Within the device's memory.
        resident(128, 1.0, memcpy_gbs=3000.0),
    )
    assert copied_gbs(cells) == 13.0
    assert copied_gbs(cells[cells["kernel"] == RESIDENT]) is None
    assert page_of(cells[cells["memcpy_gbs"].isna()])["link"] == "an unknown rate"


@pytest.mark.parametrize("form", [ADDED, OVERLAPPED])
def test_the_law_that_times_follow_is_found_and_the_other_errs_at_other_lengths(form: str) -> None:
    planted = Law(STREAMED, "pinned-pooled", form, 3e-5, 50.0, 4e-5)
    cells = table(
        *(
            cell(
                STREAMED,
                n,
                float(planted.seconds(pd.Series(k), pd.Series(16 * n)).iloc[0]),
                streams=most,
                threads=1024,
            )
            for n in (2**e for e in range(6, 28))
            for most in (1, 4, 64)
            for k in [max(1, min(most, n // 4096))]
        )
    )
    found = {law.form: law for law in laws(cells)}
    right, wrong = found.pop(form), found.popitem()[1]
    assert (right.stream_s, right.link_gbs, right.constant_s) == pytest.approx((3e-5, 50.0, 4e-5))
    assert right.worst < 1e-6 < 0.02 < wrong.worst
    assert len(page_of(cells)["laws"]) == 2
    # One number of streams, or few lengths, say nothing of a stream's cost.
    assert laws(cells[cells["streams"] == 1]) == laws(cells[cells["width"] < 2**13]) == []


def page_of(*tables: pd.DataFrame) -> Json:
    return dots_page(pd.concat(tables))


def test_the_page_holds_what_is_on_the_device_against_the_library() -> None:
    streamed = cell(STREAMED, 64, 1.0)
    alone = page_of(table(streamed, resident(64, 64e-9), resident(128, 64e-9)))
    assert (alone["link"], alone["printed"]["device to host"]) == ("12.5 GB/s", "11.8")
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
    # Without streamed cells there is no page.
    cells = table(cell(HOST, 64, 1.0), resident(64, 1.0))
    measured = Measured(cells, [], [], {}, ROOT / "reports/chapters/streamed_dot", {}, {})
    assert page(measured) == Page(None)


def test_the_record_of_an_h200_makes_a_whole_page(tmp_path: Path) -> None:
    folder = record("nvidia-h200")
    aggregate(sorted(folder.glob("dot_*/*/*.parquet")), tmp_path / "dataset")
    studies = ROOT / "reports/reference/nvidia-h200-studies"
    rows = read_table(studies / "rivals.parquet", RIVALS_SCHEMA).to_pandas()
    rivals(rows, tmp_path / "rivals-dot.svg")
    note = json.loads((tmp_path / "rivals-dot.json").read_text())
    measured = Measured(
        read_cells(tmp_path / "dataset"),
        [],
        [],
        {},
        ROOT / "reports/chapters/streamed_dot",
        {},
        {"rivals-dot.svg": note},
    )
    found = page(measured)
    assert found.facts is not None
    # Of x·y and both types: the printed loop, a share, lengths between by fresh streams and by kept
    # ones; and what is resident.
    assert len(found.findings) == 4 * 2 + 2
    assert {len(r["cells"]) for r in found.facts["changes"]["rows"]} == {
        len(found.facts["changes"]["columns"])
    }
    assert "not measured" not in {r["library"] for r in found.facts["residents"]}
    assert not any("as the document says" in finding for finding in found.findings)


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
def test_every_plot_is_readable(plot: str, drawn: list[Figure], tmp_path: Path) -> None:
    ours = measured(plot)
    dot(read_dot(FOLDER, plot), ours, plot, tmp_path / "a.svg")
    figure = drawn[0]
    assert_readable(figure)
    (ax,) = figure.axes
    assert PLOTS[plot].unit in ax.get_ylabel()
    lines = {str(m.get_label()): m.get_ydata()[0] for m in ax.lines if m.get_label() in LINES}
    assert lines == (LINES if PLOTS[plot].unit == "GB/s" else {})
    assert set(lines) | set(ours["series"]) <= set(legend_of(figure))
    bright = [line.get_label() for line in ax.lines if line.get_color() in OKABE_ITO]
    assert bright == list(ours["series"].unique())


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
