"""Figures of measured cells: nothing overlaps, the finding is in the caption, states are told."""

import io
import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.peak import PeakRow, peak_rows, write_peak
from gpushmoo.core.display import gbs
from gpushmoo.core.figure_job import FigureJob
from gpushmoo.core.space import CACHE_STATES, Problem
from gpushmoo.figures.draw_stage import draw_figure
from gpushmoo.model.fit import partition_table
from gpushmoo.model.form import LIMITS
from gpushmoo.storage.dataset import matching, read_cells
from gpushmoo.storage.wholefile import read_complete
from gpushmoo.workloads.views import Curve, FigureData, HeatMap, View, WorkingSet
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from synthetic import GPU, write_shard

KINDS = {"global_load": "load", "global_store": "store"}
PEAK_AXES = {"block_x": [128, 1024], "unroll": [1], "passes": [4]}
# 256 KiB of float to 8 GiB touched by a copy of float4.
MANY = [Problem(2**i, 2**j) for i in range(8, 15) for j in (i, i + 1) if j < 15]
DTYPES = ("float", "double", "float3", "float4")
WARM = {"height": 1024, "width": 1024, "cache_state": "warm"}
FLUSHED = {**WARM, "cache_state": "flushed"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of kernel in both cache states."""
    folder = tmp_path_factory.mktemp("cells")
    shapes = {"block_x": [4, 16, 64], "block_y": [4, 16, 64]}
    blocks = {"num_partition": [*range(1, 33), *range(66, 1057, 66), 529]}
    paths = []
    for dtype in DTYPES:
        for kernel, axes in (("copy2d_coalesced", shapes), ("block_eq_partition", blocks)):
            path = folder / f"{kernel}-{dtype}.parquet"
            paths.append(write_shard(path, kernel, dtype, states=CACHE_STATES, axes=axes))
    for kernel, dtype in itertools.product((*KINDS, "global_copy"), ("float", "float4")):
        path = folder / f"{kernel}-{dtype}.parquet"
        paths.append(
            write_shard(path, kernel, dtype, problems=MANY, states=CACHE_STATES, axes=PEAK_AXES)
        )
    aggregate(paths, folder / "dataset")
    return folder / "dataset"


@pytest.fixture(scope="module")
def cells(dataset: Path) -> pd.DataFrame:
    return read_cells(dataset)


@pytest.fixture(scope="module")
def peak(cells: pd.DataFrame) -> list[PeakRow]:
    return peak_rows(cells, KINDS)


SHAPE, PERSISTENT = HeatMap("block_x", "block_y"), Curve("num_partition", "blocks")


def draw(
    view: View,
    cells: pd.DataFrame,
    svg: Path,
    peak: Sequence[PeakRow] = (),
    dtypes: Sequence[str] = (),
    controls: Sequence[str] = (),
    named: Sequence[str] = (),
    device: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Draw a view of these cells of one kernel; title and caption."""
    kernel = str(cells["kernel"].iloc[0]) if len(cells) else "none"
    kept = tuple(dtypes) or tuple(sorted(cells["dtype"].unique()))
    data = FigureData(kernel, kept, tuple(controls), tuple(named), cells, peak, device)
    view.draw(data, svg)
    return note_of(svg)


def note_of(svg: Path) -> dict[str, Any]:
    return json.loads(svg.with_suffix(".json").read_text())


def ticks_out_of_sight(ax: Axes) -> list[Text]:
    """Labels that matplotlib keeps beyond the ends of the axes and does not draw."""
    found = []
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        out = [t for t in ticks if not low <= t.get_loc() <= high]
        found += [label for t in out for label in (t.label1, t.label2)]
    return found


def assert_readable(figure: Figure, boxes: bool = True) -> None:
    """No two texts, with `boxes` around them, overlap, and none leaves the page."""
    # A closed figure has forgotten the resolution at which it was laid out: an SVG's.
    figure.dpi = 72
    hidden = set(itertools.chain.from_iterable(map(ticks_out_of_sight, figure.axes)))
    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    extents = {t: t.get_window_extent() if boxes else Text.get_window_extent(t) for t in shown}
    places = [(t.get_text(), box) for t, box in extents.items() if t not in hidden]
    page = figure.bbox
    for text, box in places:
        inside = page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        assert inside, f"{text!r} leaves the page"
    for (one, a), (two, b) in itertools.combinations(places, 2):
        apart = a.x1 <= b.x0 or b.x1 <= a.x0 or a.y1 <= b.y0 or b.y1 <= a.y0
        assert apart, f"{one!r} overlaps {two!r}"
    for ax in figure.axes:
        if ax.get_xlabel():
            assert "(" in ax.get_xlabel()


def sentences(caption: str) -> int:
    return len(re.findall(r"[.](?: |$)", caption))


def legend_of(figure: Figure) -> list[str]:
    return [t.get_text() for legend in figure.legends for t in legend.get_texts()]


@pytest.fixture(scope="module")
def copies(cells: pd.DataFrame) -> pd.DataFrame:
    """Warm float copies over block shapes, of all variants."""
    return matching(cells, {"kernel": "copy2d_coalesced", "dtype": "float", **WARM})


def test_a_heatmap_is_readable(cells: pd.DataFrame, drawn: list[Figure], tmp_path: Path) -> None:
    mine = matching(cells, {"kernel": "copy2d_coalesced", **FLUSHED})
    note = draw(SHAPE, mine, tmp_path / "a.svg", dtypes=DTYPES, named=["cache_state"])
    assert_readable(drawn[0])
    assert "1024 × 1024 elements, L2 flushed:" in note["title"]
    tops = mine[mine["status"] == "ok"].groupby("dtype", observed=True)["bandwidth_gbs"].max()
    titles = [ax.get_title() for ax in drawn[0].axes if ax.get_title()]
    assert all(title.endswith(gbs(tops[title.split("\n")[0]])) for title in titles)
    assert sentences(note["caption"]) == 1


def test_a_caption_counts_shapes_and_says_what_is_shown_of_a_third_axis(
    copies: pd.DataFrame, tmp_path: Path
) -> None:
    ok = copies[(copies["status"] == "ok") & (copies["variant"] == "element")]
    flat = ok.dropna(axis="columns", how="all").reset_index(drop=True)
    times = ["median_s", "group_low_s", "group_high_s"]
    flat[times] = 3.0
    flat.loc[0, times] = 1.0
    shapes = len(flat)
    caption = draw(SHAPE, flat, tmp_path / "a.svg")["caption"]
    assert caption.startswith(f"1 of {shapes} shapes")
    slower = flat.assign(unroll=2, cell_key=flat["cell_key"] + "2", median_s=9.0)
    caption = draw(SHAPE, pd.concat([flat.assign(unroll=1), slower]), tmp_path / "b.svg")["caption"]
    assert "the fastest launch over unroll" in caption
    assert f"1 of {shapes} shapes" in caption
    # A type with as many shapes, of which others are close.
    both = pd.concat([flat, flat.assign(dtype="double", **dict.fromkeys(times, 1.0))])
    caption = draw(SHAPE, both, tmp_path / "c.svg", dtypes=("float", "double"))["caption"]
    assert f"1 to {shapes} of {shapes} shapes" in caption


def slowed(cells: pd.DataFrame, variant: str, factor: float) -> pd.DataFrame:
    """The cells, so many times slower, as another variant."""
    times = ["median_s", "median_low_s", "median_high_s"]
    bands = ["bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs"]
    found = cells.assign(variant=variant)
    found[times] *= factor
    found[bands] /= factor
    return found


@pytest.fixture(scope="module")
def variants(cells: pd.DataFrame) -> Callable[..., pd.DataFrame]:
    """Cells of the first variant and others that are slower by these factors."""
    element = matching(cells, {"kernel": "copy2d_coalesced", "variant": "element", **WARM})
    return lambda **factors: pd.concat(
        [element, *(slowed(element, name, factor) for name, factor in factors.items())]
    )


def test_each_type_has_the_map_of_its_fastest_variant(
    variants: Callable[..., pd.DataFrame], drawn: list[Figure], tmp_path: Path
) -> None:
    svg = tmp_path / "a.svg"

    def titles_of(cells: pd.DataFrame, **options: Any) -> list[str]:
        draw(SHAPE, cells, svg, dtypes=DTYPES, **options)
        titles = [ax.get_title().split("\n") for ax in drawn[-1].axes]
        # The last line is the winner's.
        return [
            ", ".join(title[:-1] if "GB/s" in title[-1] else title) for title in titles if title[0]
        ]

    of_element = [f"{dtype}, element" for dtype in DTYPES]
    assert titles_of(variants(slow=2.0, slower=4.0)) == of_element
    assert titles_of(variants()) == list(DTYPES)
    # Controls do not win.
    assert titles_of(variants(slow=2.0, stored=0.5), controls=["stored"]) == of_element
    lacking = variants(a=2.0)
    lacking["status"] = lacking["status"].mask(lacking["dtype"] == "double", "timeout")
    assert len(titles_of(lacking)) == len(DTYPES)
    assert draw(SHAPE, lacking.assign(status="timeout"), svg)["caption"] == "No valid cell."


def test_a_map_of_limits(copies: pd.DataFrame, drawn: list[Figure], tmp_path: Path) -> None:
    measured = copies[copies["status"] == "ok"]
    device = measured[["device_name", "cell_key"]].assign(limit="waiting")
    device.loc[device.index[:2], "limit"] = "DRAM"
    for table in (None, device.assign(cell_key="other"), device):
        note = draw(SHAPE, copies, tmp_path / "a.svg", device=table)
    without, unknown, told = drawn
    assert len(without.axes) == len(unknown.axes) == len(told.axes) - 1 == 2
    above, below = (ax.collections[0].get_array() for ax in told.axes[:2])
    assert below.mask.tolist() == above.mask.tolist(), "cells that were measured have a limit"
    assert set(below.compressed()) <= {LIMITS.index("waiting"), LIMITS.index("DRAM")}
    assert set(legend_of(told)) >= {"limit: waiting", "limit: DRAM"}
    assert "infers: waiting" in note["caption"]


OWN_VIEW = """
from gpushmoo.figures.style import plt, save
from gpushmoo.workloads.contract import View

class Own(View):
    {body}

class Mine(CopyWorkload):
"""


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("save(plt.figure(), svg, 'Title', 'Caption')", None),
        (None, None),
        ("pass", "mine/workload.py: draw of view 'view-own' saves no figure by style.save"),
        ("svg.write_text('<svg/>')", "draw of view 'view-own' saves no figure by style.save"),
        ("save(plt.figure(), svg, 1, None)", "title and caption of view 'view-own' must be texts"),
        ("raise SystemExit", "SystemExit (a workload must not end the program)"),
        ("data.cells.no_column", "AttributeError: 'DataFrame' object has no attribute 'no_column'"),
    ],
)
def test_a_view_that_fails_says_why_in_its_figures_place(
    dataset: Path,
    make_kernel: Callable[..., Path],
    tmp_path: Path,
    body: str | None,
    fault: str | None,
) -> None:
    folder = make_kernel("mine", "", "")
    method = f"def draw(self, data, svg): {body}"
    if body is None:
        method = 'drawing = "mine.drawn:draw"'
        body = "from gpushmoo.figures.style import plt, save\ndef draw(view, data, svg): "
        (folder / "drawn.py").write_text(body + "save(plt.figure(), svg, 'Title', 'Caption')\n")
    text = (folder / "workload.py").read_text().replace('Curve("block_x", unit="threads")', "Own()")
    text = text.replace("\nclass Mine(CopyWorkload):\n", OWN_VIEW.format(body=method))
    (folder / "workload.py").write_text(text)
    write_peak([], tmp_path / "peak.json")
    files = {"dataset": dataset, "peak": tmp_path / "peak.json"}
    where = {"kernel": "mine", "height": 64, "width": 64, "cache_state": "warm"}
    job = FigureJob(
        folder=str(folder),
        view="view-own",
        where=where,
        dtypes=["float"],
        controls=[],
        named=[],
    )
    assert FigureJob.of_plain(job.plain) == job
    svg, terminal = tmp_path / "a.svg", io.StringIO()
    draw_figure(job, files, svg, terminal)
    read_complete(svg)
    note = note_of(svg)
    if fault is None:
        assert (note["title"], terminal.getvalue()) == ("Title", "")
        return
    assert note["title"] == "mine: view 'view-own' is not drawn"
    assert fault in note["fault"]
    assert terminal.getvalue() == f"gpushmoo: figure 'a' is not drawn: {note['fault']}\n"


def test_curve_is_readable_and_has_its_peak(
    cells: pd.DataFrame, peak: list[PeakRow], drawn: list[Figure], tmp_path: Path
) -> None:
    mine = matching(cells, {"kernel": "block_eq_partition", **FLUSHED})
    told = {"named": ["cache_state"], "device": partition_table(mine)}
    note = draw(PERSISTENT, mine, tmp_path / "a.svg", peak, **told)
    assert_readable(drawn[0])
    assert "measured peak (float4)" in legend_of(drawn[0])
    assert "L2 flushed" in note["title"]
    assert "% of the measured peak" in note["caption"]
    assert "The model misses points that it was not fitted to by" in note["caption"]
    assert sentences(note["caption"]) == 2


def test_working_sets_are_readable(
    cells: pd.DataFrame, peak: list[PeakRow], drawn: list[Figure], tmp_path: Path
) -> None:
    svg = tmp_path / "a.svg"
    note = draw(WorkingSet(), matching(cells, {"kernel": "global_copy"}), svg, peak)
    figure = drawn[0]
    assert_readable(figure)
    assert legend_of(figure) == ["float", "float4", "warm", "L2 flushed", "L2, 60.0 MiB"]
    ticks = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert ticks == ["1 MiB", "4 MiB", "16 MiB", "64 MiB", "256 MiB", "1 GiB", "4 GiB"]
    for said in ("% of the measured peak", "inside the L2", "far outside", "× L2"):
        assert said in note["caption"]
    # The measured peak is no share of itself.
    loads = matching(cells, {"kernel": "global_load"})
    assert "peak" not in draw(WorkingSet(), loads, svg, peak)["caption"]
    assert draw(WorkingSet(), loads.assign(status="timeout"), svg)["caption"] == "No valid cell."


def test_a_cache_of_unknown_size_leaves_bytes(drawn: list[Figure], tmp_path: Path) -> None:
    """A CPU: the last level has another name, and its size may not be told."""
    info = replace(GPU, cache=0, backend="opencl")
    path = tmp_path / "a.parquet"
    write_shard(path, "global_load", "float", problems=MANY, axes=PEAK_AXES, info=info)
    aggregate([path], tmp_path / "dataset")
    cells = read_cells(tmp_path / "dataset").copy()
    fast = cells["bytes_read"] <= 2**24
    columns = ["bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs"]
    cells.loc[fast, columns] = 9000.0
    caption = draw(WorkingSet(), cells, tmp_path / "a.svg")["caption"]
    assert "L2" not in caption
    assert "9000 GB/s at most" in caption
    assert "falls between 16.0 MiB and 32.0 MiB" in caption
    assert_readable(drawn[0])
