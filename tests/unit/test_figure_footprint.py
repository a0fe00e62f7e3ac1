"""The figure of block shapes: readable, its finding in words, small enough for a document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from gpushmoo.analysis.models.blocks import NONE
from gpushmoo.analysis.models.shapes import fit_shapes
from gpushmoo.figures.footprint import footprint
from matplotlib.figure import Figure
from test_blocks import MEMORY_BOUND, WITHOUT_MEMORY, WORKLOADS, measured
from test_figures import assert_readable, legend_of, note_of

Fits = list[dict[str, Any]]


def staged(cells: pd.DataFrame, folder: Path) -> tuple[pd.DataFrame, Fits]:
    fit_shapes(cells, WORKLOADS, 0.25, 1, folder / "s.json", folder / "s.parquet")
    fits: Fits = json.loads((folder / "s.json").read_text())["fits"]
    return pd.read_parquet(folder / "s.parquet"), fits


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Fits]:
    """A kernel that sectors limit and one that they do not."""
    memory = measured(MEMORY_BOUND, "tiled")
    texture = measured(WITHOUT_MEMORY, NONE, kernel="tex2d_sum")
    return staged(pd.concat([memory, texture]), tmp_path_factory.mktemp("shapes"))


def of(found: tuple[pd.DataFrame, Fits], kernel: str) -> pd.DataFrame:
    return found[0][found[0]["kernel"] == kernel]


@pytest.mark.parametrize("kernel", ["surf2d_memset", "tex2d_sum"])
def test_figure_is_readable(
    found: tuple[pd.DataFrame, Fits], drawn: list[Figure], tmp_path: Path, kernel: str
) -> None:
    footprint(of(found, kernel), found[1], tmp_path / "a.svg", named=["cache_state"])
    assert_readable(drawn[0])
    mappings = sorted(WORKLOADS[kernel].mappings)
    assert legend_of(drawn[0]) == [*mappings, "launch limit", "model, full warps", "1 / sectors"]
    assert "2048 × 2048 elements, warm, float: " in note_of(tmp_path / "a.svg")["title"]


@pytest.mark.usefixtures("drawn")
def test_caption_says_with_numbers_whether_sectors_count(
    found: tuple[pd.DataFrame, Fits], tmp_path: Path
) -> None:
    footprint(of(found, "surf2d_memset"), found[1], tmp_path / "a.svg")
    note = note_of(tmp_path / "a.svg")
    assert "count too" in note["title"]
    assert "warm" not in note["title"]
    for said in ("layout 'tiled'", "its median error is ", " %"):
        assert said in note["caption"]
    assert "memory " in note["caption"]
    footprint(of(found, "tex2d_sum"), found[1], tmp_path / "b.svg")
    note = note_of(tmp_path / "b.svg")
    assert "do not show" in note["title"]
    assert "do not show" in note["caption"]
    assert "memory " not in note["caption"]


def test_launch_limit_is_a_texel_a_thread_and_interval(
    found: tuple[pd.DataFrame, Fits], drawn: list[Figure], tmp_path: Path
) -> None:
    footprint(of(found, "surf2d_memset"), found[1], tmp_path / "a.svg")
    line = next(li for li in drawn[0].axes[0].lines if li.get_linestyle() == "--")
    low, high = line.get_ydata()
    assert low == 0
    most = of(found, "surf2d_memset")["threads"].max()
    expected = most * 4 * 132 / MEMORY_BOUND["launch_s"] * 1e-9
    assert high == pytest.approx(expected, rel=0.02)


def test_thousands_of_points_stay_small(found: tuple[pd.DataFrame, Fits], tmp_path: Path) -> None:
    many = pd.concat([of(found, "surf2d_memset")] * 30, ignore_index=True)
    assert len(many) > 5000
    footprint(many, found[1], tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size < 1.5e6


def test_without_a_model_the_points_are_drawn(
    found: tuple[pd.DataFrame, Fits], drawn: list[Figure], tmp_path: Path
) -> None:
    few = measured(MEMORY_BOUND, "tiled").iloc[::80]
    rows, fits = staged(few.iloc[:4], tmp_path)
    assert fits[0]["best"] is None
    footprint(rows, fits, tmp_path / "a.svg")
    assert "launch limit" not in legend_of(drawn[0])
    assert "No model is drawn: " in note_of(tmp_path / "a.svg")["caption"]
    # Shapes that the launch limits all are still compared; without rows the figure says so.
    footprint(of(found, "surf2d_memset").assign(limit="launch"), found[1], tmp_path / "a.svg")
    footprint(found[0].iloc[:0], [], tmp_path / "a.svg")
    assert note_of(tmp_path / "a.svg")["caption"] == "No valid cell."
    assert len(drawn) == 3
    for figure in drawn:
        assert_readable(figure)


def test_of_two_device_names_one_is_shown(found: tuple[pd.DataFrame, Fits], tmp_path: Path) -> None:
    mine = of(found, "surf2d_memset")
    other = mine.assign(device_name="ZZZ", measured_gbs=9e9)
    fits = [*({**f, "device_name": "ZZZ"} for f in found[1]), *found[1]]
    for name, rows, given in (("a", pd.concat([other, mine]), fits), ("b", mine, found[1])):
        footprint(rows, given, tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
