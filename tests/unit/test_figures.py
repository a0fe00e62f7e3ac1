"""Figures of measured cells: nothing overlaps, the finding is in the caption, states are told."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.ceiling import CeilingRow, ceiling_rows, write_ceiling
from gpushmoo.core.display import percent
from gpushmoo.core.dtypes import DTYPES as ALL_DTYPES
from gpushmoo.core.space import CACHE_STATES, Problem
from gpushmoo.figures.curve import curve
from gpushmoo.figures.heatmap import heatmap
from gpushmoo.figures.stage import draw_figure
from gpushmoo.figures.style import DTYPE_COLOURS, DTYPE_MARKERS
from gpushmoo.figures.workingset import workingset
from gpushmoo.model.form import LIMITS
from gpushmoo.model.partition import partition_table
from gpushmoo.storage.dataset import matching, read_cells
from gpushmoo.storage.wholefile import read_summed
from gpushmoo.workloads.views import FigureData, HeatMap
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
def ceiling(cells: pd.DataFrame) -> list[CeilingRow]:
    return ceiling_rows(cells, KINDS)


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


# Shmoos and curves


@pytest.mark.parametrize("where", [WARM, FLUSHED])
def test_heatmap_is_readable_and_says_its_state(
    cells: pd.DataFrame, drawn: list[Figure], tmp_path: Path, where: dict[str, Any]
) -> None:
    mine = matching(cells, {"kernel": "copy2d_coalesced", **where})
    svg = tmp_path / "a.svg"
    heatmap(mine, "block_x", "block_y", list(DTYPES), svg, named=["cache_state"])
    assert_readable(drawn[0])
    state = "warm" if where is WARM else "L2 flushed"
    assert f"1024 × 1024 elements, {state}:" in note_of(svg)["title"]
    caption = note_of(svg)["caption"]
    assert all(f"({dtype}" in caption for dtype in DTYPES)
    assert sentences(caption) == 2


def slowed(cells: pd.DataFrame, variant: str, factor: float) -> pd.DataFrame:
    """The cells of ``element``, so many times slower, as another variant."""
    times = ["median_s", "median_low_s", "median_high_s"]
    bands = ["bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs"]
    found = cells[cells["variant"] == "element"].assign(variant=variant)
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
    def titles_of(cells: pd.DataFrame, **options: Any) -> list[str]:
        heatmap(cells, "block_x", "block_y", list(DTYPES), tmp_path / "a.svg", **options)
        return [ax.get_title().replace("\n", ", ") for ax in drawn[-1].axes if ax.get_title()]

    of_element = [f"{dtype}, element" for dtype in DTYPES]
    assert titles_of(variants(slow=2.0, slower=4.0)) == of_element
    assert_readable(drawn[0])
    assert titles_of(variants()) == list(DTYPES)
    # Controls do not win.
    assert titles_of(variants(slow=2.0, stored=0.5), controls=["stored"]) == of_element
    lacking = variants(a=2.0)
    lacking["status"] = lacking["status"].mask(lacking["dtype"] == "double", "timeout")
    assert len(titles_of(lacking)) == len(DTYPES)
    assert "double" not in note_of(tmp_path / "a.svg")["caption"]
    heatmap(lacking.assign(status="timeout"), "block_x", "block_y", ["float"], tmp_path / "a.svg")
    assert note_of(tmp_path / "a.svg")["caption"] == "No valid cell."


def test_the_caption_says_how_many_shapes_are_close_to_the_best(
    cells: pd.DataFrame, tmp_path: Path
) -> None:
    mine = matching(cells, {"kernel": "copy2d_coalesced", "dtype": "float", **WARM})
    mine = mine[(mine["variant"] == "element") & (mine["status"] == "ok")].copy()
    mine["bandwidth_gbs"] = 100.0
    mine.iloc[0, mine.columns.get_loc("bandwidth_gbs")] = 50.0
    heatmap(mine, "block_x", "block_y", ["float"], tmp_path / "a.svg")
    caption = note_of(tmp_path / "a.svg")["caption"]
    share = percent((len(mine) - 1) / len(mine))
    assert caption.endswith(
        f"{share} of the shapes take at most 5.0 % more time, and the slowest reach 50 % of the "
        "bandwidth."
    )
    # Text of an SVG stays text.
    assert "block_x (threads)" in read_summed(tmp_path / "a.svg").decode()


def test_many_panels_with_long_names_are_readable(
    variants: Callable[..., pd.DataFrame], drawn: list[Figure], tmp_path: Path
) -> None:
    mine = variants(**{"block-linear-mirror-written": 0.5})
    more = mine[mine["dtype"] == "float"].assign(dtype="unorm8x4")
    dtypes = [*DTYPES, "unorm8x4"]
    shown = pd.concat([mine, more])
    heatmap(shown, "block_x", "block_y", dtypes, tmp_path / "a.svg")
    device = shown[["device_name", "cell_key"]].drop_duplicates().assign(limit="DRAM")
    heatmap(shown, "block_x", "block_y", dtypes, tmp_path / "a.svg", device=device)
    for figure in drawn:
        assert_readable(figure)


def test_a_curve_has_the_line_of_the_model_where_there_is_one(
    cells: pd.DataFrame, drawn: list[Figure], tmp_path: Path
) -> None:
    mine = matching(cells, {"kernel": "block_eq_partition", "dtype": "float", **WARM})
    measured = mine[mine["status"] == "ok"]
    device = measured[["device_name", "cell_key"]].assign(predicted_gbs=77.0, trained=True)
    for table in (None, device):
        curve(mine, "num_partition", "blocks", tmp_path / "a.svg", model=table)
    without, told = ([t.get_text() for t in f.legends[0].texts] for f in drawn)
    assert set(told) - set(without) == {"model"}
    ax = drawn[1].axes[0]
    assert any(set(line.get_ydata()) == {77.0} for line in ax.lines)


def test_a_map_of_limits_stands_below_where_the_model_speaks_of_the_cells(
    cells: pd.DataFrame, drawn: list[Figure], tmp_path: Path
) -> None:
    mine = matching(cells, {"kernel": "copy2d_coalesced", "dtype": "float", **WARM})
    measured = mine[mine["status"] == "ok"]
    device = measured[["device_name", "cell_key"]].assign(limit="waiting")
    device.loc[device.index[:2], "limit"] = "DRAM"
    out = tmp_path / "a.svg"
    for table in (None, device.assign(cell_key="other"), device):
        heatmap(mine, "block_x", "block_y", ["float"], out, device=table)
    without, unknown, told = drawn
    assert len(without.axes) == len(unknown.axes) == len(told.axes) - 1 == 2
    above, below = (ax.collections[0].get_array() for ax in told.axes[:2])
    assert below.mask.tolist() == above.mask.tolist(), "cells that were measured have a limit"
    assert set(below.compressed()) <= {LIMITS.index("waiting"), LIMITS.index("DRAM")}
    assert {t.get_text() for t in told.legends[0].texts} >= {"limit: waiting", "limit: DRAM"}
    assert "infers: waiting" in note_of(out)["caption"]


@pytest.mark.parametrize(
    ("view", "label", "over", "section"),
    [
        (HeatMap("block_x", "block_y"), "block_x (threads)", "the block's shape", "Block shape"),
        (HeatMap("tile", "depth"), "tile", "tile and depth", "Bandwidth over two parameters"),
        (
            HeatMap("tile", "depth", "rows", "stages", over="the pipeline's form"),
            "tile (rows)",
            "the pipeline's form",
            "Bandwidth over two parameters",
        ),
    ],
)
def test_a_heat_map_says_what_its_axes_are(
    cells: pd.DataFrame,
    drawn: list[Figure],
    tmp_path: Path,
    view: HeatMap,
    label: str,
    over: str,
    section: str,
) -> None:
    mine = matching(cells, {"kernel": "copy2d_coalesced", "dtype": "float", **WARM})
    named = mine.rename(columns={"block_x": view.x, "block_y": view.y})
    view.draw(FigureData("copy2d_coalesced", ("float",), (), (), named, ()), tmp_path / "a.svg")
    assert drawn[0].axes[-2].get_xlabel() == label
    note = note_of(tmp_path / "a.svg")
    assert note["title"].endswith(f"bandwidth over {over}")
    assert ("of the shapes" in note["caption"]) == (section == "Block shape")
    assert view.section() == section


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
    write_ceiling([], tmp_path / "ceiling.json")
    files = {"dataset": dataset, "ceiling": tmp_path / "ceiling.json"}
    where = {"kernel": "mine", "height": 64, "width": 64, "cache_state": "warm"}
    spec = {"folder": str(folder), "view": "view-own", "where": where}
    words = {"dtypes": ["float"], "controls": [], "named": []}
    svg, terminal = tmp_path / "a.svg", io.StringIO()
    draw_figure(spec | words, files, svg, terminal)
    read_summed(svg)
    note = note_of(svg)
    if fault is None:
        assert (note["title"], terminal.getvalue()) == ("Title", "")
        return
    assert note["title"] == "mine: view 'view-own' is not drawn"
    assert fault in note["fault"]
    assert terminal.getvalue() == f"gpushmoo: figure 'a' is not drawn: {note['fault']}\n"


def test_an_axis_of_many_multiples_of_16_is_readable(
    cells: pd.DataFrame, drawn: list[Figure], tmp_path: Path
) -> None:
    where = {"kernel": "copy2d_coalesced", "variant": "element", "dtype": "float", **WARM}
    cell = matching(cells, where).iloc[[0]]
    widths = range(128, 1056, 32)
    mine = pd.concat([cell.assign(block_x=x, block_y=1) for x in widths], ignore_index=True)
    heatmap(mine, "block_x", "block_y", ["float"], tmp_path / "a.svg")
    assert_readable(drawn[0])
    shown = [t.get_text() for t in drawn[0].axes[0].get_xticklabels()]
    assert shown == ["128", "256", "512", "768", "1024"]


@pytest.mark.parametrize("panels", [1, 12])
def test_any_number_of_panels_fits_a_page(
    cells: pd.DataFrame, drawn: list[Figure], tmp_path: Path, panels: int
) -> None:
    where = {"kernel": "copy2d_coalesced", "variant": "element", "dtype": "float", **WARM}
    element = matching(cells, where)
    mine = pd.concat([element.assign(dtype=f"v{i:02}") for i in range(panels)])
    heatmap(mine, "block_x", "block_y", sorted(mine["dtype"].unique()), tmp_path / "a.svg")
    width, height = drawn[0].get_size_inches()
    # A4 in inches, less margins of 2 cm and room for a caption.
    assert width <= 6.7
    assert height <= 8.5
    assert len(drawn[0].axes) == panels + 1


def test_curve_is_readable_and_has_its_ceiling(
    cells: pd.DataFrame,
    ceiling: list[CeilingRow],
    drawn: list[Figure],
    tmp_path: Path,
) -> None:
    where = {"kernel": "block_eq_partition", **FLUSHED}
    svg = tmp_path / "a.svg"
    mine = matching(cells, where)
    told = (["cache_state"], partition_table(mine))
    curve(mine, "num_partition", "blocks", svg, ceiling, *told)
    assert_readable(drawn[0])
    assert "ceiling (float4)" in legend_of(drawn[0])
    assert "L2 flushed" in note_of(svg)["title"]
    assert "% of the ceiling" in note_of(svg)["caption"]
    assert "The model misses points that it was not fitted to by" in note_of(svg)["caption"]
    assert sentences(note_of(svg)["caption"]) == 2


def test_what_is_faster_than_its_ceiling_has_no_share(
    cells: pd.DataFrame, ceiling: list[CeilingRow], tmp_path: Path
) -> None:
    names = ("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs")
    tenth = [replace(r, **{name: getattr(r, name) / 10 for name in names}) for r in ceiling]
    where = {"kernel": "block_eq_partition", **FLUSHED}
    curved, sized = tmp_path / "a.svg", tmp_path / "b.svg"
    curve(matching(cells, where), "num_partition", "blocks", curved, tenth)
    workingset(matching(cells, {"kernel": "global_copy"}), "global_copy", sized, tenth)
    for svg in (curved, sized):
        caption = note_of(svg)["caption"]
        assert "GB/s, above the ceiling, which is no bound there" in caption
        assert "% of the ceiling" not in caption


def test_without_a_ceiling_none_is_drawn(
    cells: pd.DataFrame, drawn: list[Figure], tmp_path: Path
) -> None:
    where = {"kernel": "block_eq_partition", **WARM}
    curve(matching(cells, where), "num_partition", "blocks", tmp_path / "a.svg")
    assert not any("ceiling" in label for label in legend_of(drawn[0]))
    note = note_of(tmp_path / "a.svg")
    assert "ceiling" not in note["caption"]
    assert "warm" not in note["title"]


# Working sets


def test_working_sets_are_readable(
    cells: pd.DataFrame, ceiling: list[CeilingRow], drawn: list[Figure], tmp_path: Path
) -> None:
    svg = tmp_path / "a.svg"
    workingset(matching(cells, {"kernel": "global_copy"}), "global_copy", svg, ceiling)
    figure = drawn[0]
    assert_readable(figure)
    labels = ["float", "float4", "warm", "L2 flushed", "L2, 60.0 MiB"]
    assert legend_of(figure) == labels
    ticks = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert ticks == ["1 MiB", "4 MiB", "16 MiB", "64 MiB", "256 MiB", "1 GiB", "4 GiB"]
    note = note_of(svg)
    for said in ("% of the ceiling", "inside the L2", "far outside", "× L2"):
        assert said in note["caption"]
    # The ceiling is no share of itself.
    workingset(matching(cells, {"kernel": "global_load"}), "global_load", svg, ceiling)
    assert "ceiling" not in note_of(svg)["caption"]


def test_one_size_is_just_points(cells: pd.DataFrame, drawn: list[Figure], tmp_path: Path) -> None:
    where = {"kernel": "global_load", "dtype": "float", "cache_state": "warm"}
    one = matching(cells, {**where, "height": 2048, "width": 2048})
    svg = tmp_path / "a.svg"
    workingset(one, "global_load", svg)
    assert_readable(drawn[0])
    assert "falls" not in note_of(svg)["caption"]
    assert "inside the L2" in note_of(svg)["caption"]
    assert "far outside" not in note_of(svg)["caption"]


def test_without_a_valid_cell_the_figure_says_so(
    cells: pd.DataFrame, drawn: list[Figure], tmp_path: Path
) -> None:
    bad = matching(cells, {"kernel": "global_load"}).assign(status="timeout")
    for name, shown in (("bad", bad), ("none", bad.iloc[:0])):
        workingset(shown, "global_load", tmp_path / f"{name}.svg")
        assert note_of(tmp_path / f"{name}.svg")["caption"] == "No valid cell."
    for figure in drawn:
        assert_readable(figure)


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
    workingset(cells, "global_load", tmp_path / "a.svg")
    note = note_of(tmp_path / "a.svg")
    assert "L2" not in note["caption"]
    assert "9000 GB/s at most" in note["caption"]
    assert "falls between 16.0 MiB and 32.0 MiB" in note["caption"]
    assert_readable(drawn[0])


def test_every_dtype_has_a_colour_and_a_marker_of_its_own() -> None:
    assert set(DTYPE_COLOURS) == set(DTYPE_MARKERS) == set(ALL_DTYPES)
    assert len(set(DTYPE_COLOURS.values())) == len(set(DTYPE_MARKERS.values())) == len(ALL_DTYPES)


def test_same_cells_give_the_same_bytes(cells: pd.DataFrame, tmp_path: Path) -> None:
    mine = matching(cells, {"kernel": "global_store"})
    for name in ("a", "b"):
        workingset(mine, "global_store", tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
