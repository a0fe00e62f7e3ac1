"""Tables of docs/h200.md and other pages, computed again from packed records by plain pandas.

Nothing of the library is used, so that a fault of its reading, its medians or its bests would show.
"""

import json
import re
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
TYPES = ["float", "double", "float3", "float4"]
# Columns of the packed record that the tables are made of. Its axes are columns, too.
AXES = ["block_x", "block_y", "block_rows", "num_partition"]
KEY = ["kernel", "dtype", "variant", "height", "width", "cache_state", "timing_mode"]
MEASURED = ["status", "samples_s", "bytes_read", "bytes_written", "memcpy_gbs"]


def cells_of(record: str, axes: list[str]) -> pd.DataFrame:
    """A row for each verified cell: the geometric mean of its repeats' medians, as GB/s."""
    packed = ROOT / "reports/reference" / record / "packed.parquet"
    table = pd.read_parquet(packed, columns=[*KEY, *axes, *MEASURED])
    table = table[table["status"] == "ok"]
    seconds = np.log([median(samples) for samples in table["samples_s"]])
    table = table.assign(log_s=seconds, **table[axes].fillna(-1))
    found = table.groupby([*KEY, *axes], observed=True).agg(
        log_s=("log_s", "mean"),
        read=("bytes_read", "first"),
        written=("bytes_written", "first"),
        memcpy=("memcpy_gbs", "mean"),
        repeats=("log_s", "size"),
    )
    found["gbs"] = (found["read"] + found["written"]) / np.exp(found["log_s"]) / 1e9
    return found.reset_index()


@pytest.fixture(scope="module")
def cells() -> pd.DataFrame:
    """The cells of the page's record."""
    return cells_of("nvidia-h200", [*AXES, "unroll", "passes", "threads", "grid"])


@pytest.fixture(scope="module")
def page() -> str:
    """The page as it is committed."""
    return (ROOT / "docs/h200.md").read_text("utf-8")


def row(page: str, begin: str) -> list[str]:
    """The cells of the page's first table row whose first cell begins so, without the first."""
    found = next(line for line in page.splitlines() if line.startswith(f"| {begin}"))
    return [cell.strip() for cell in found.strip("|\n ").split("|")][1:]


def value(cell: str) -> float:
    """The number before the brackets of an interval."""
    found = re.search(r"([\d.]+) (?:% )?\(", cell)
    assert found, cell
    return float(found[1])


def values(page: str, begin: str) -> list[float]:
    """The numbers of a row of intervals."""
    return [value(cell) for cell in row(page, begin) if "(" in cell]


def test_every_fastest_launch_of_the_race_was_measured_twice(cells: pd.DataFrame) -> None:
    """A race takes a cell that cannot win out after its first repeat."""
    swept = cells[~cells["kernel"].str.startswith("dot_")]
    fastest = swept.loc[swept.groupby(KEY, observed=True)["gbs"].idxmax()]
    assert (fastest["repeats"] == 2).all()
    assert len(fastest) > 300


def test_the_peak_table(cells: pd.DataFrame, page: str) -> None:
    copies = ["global_load", "global_store", "global_copy"]
    cache = 60 * 2**20
    inside = (cells["read"] + cells["written"]) <= cache
    far = (cells["width"] == 16384) & (cells["dtype"] == "float4")
    begins = {
        ("warm", "far"): "outside L2",
        ("flushed", "far"): "the same, L2 flushed before",
        ("warm", "inside"): "best size inside L2",
        ("flushed", "inside"): "the same, flushed |",
    }
    for (state, where), begin in begins.items():
        chosen = cells[(far if where == "far" else inside) & (cells["cache_state"] == state)]
        best = [chosen[chosen["kernel"] == kernel]["gbs"].max() for kernel in copies]
        assert values(page, begin) == [round(gbs) for gbs in best]


def test_the_tile_copy(cells: pd.DataFrame, page: str) -> None:
    tiles = cells[(cells["kernel"] == "copy2d_document") & (cells["block_rows"] == 8)]
    for variant, begin in (("published", "as published"), ("distinct", "pointers distinct")):
        speed = tiles[tiles["variant"] == variant].set_index("dtype")["gbs"]
        *found, ratio = values(page, begin)
        assert found == [round(speed[dtype]) for dtype in TYPES]
        assert ratio == round(speed["double"] / speed["float"], 3)


def test_the_cliff(cells: pd.DataFrame, page: str) -> None:
    persistent = cells[
        (cells["kernel"] == "block_eq_partition")
        & (cells["variant"] == "exact")
        & (cells["width"] == 8192)
        & (cells["cache_state"] == "warm")
    ]
    speed = persistent.set_index(["num_partition", "dtype"])["gbs"]
    for blocks in (528, 529, 1056, 1057):
        assert values(page, f"{blocks} |") == [round(speed[blocks, d]) for d in TYPES]
    lost = [100 * (1 - speed[529, d] / speed[528, d]) for d in TYPES]
    assert values(page, "lost from 528") == [round(share, 1) for share in lost]


def test_the_best_shapes(cells: pd.DataFrame, page: str) -> None:
    copies = cells[cells["kernel"] == "copy2d_coalesced"]
    shapes = copies[(copies["block_x"] * copies["block_y"]) <= 1024]
    assert len(shapes[["block_x", "block_y"]].drop_duplicates()) == 527
    for width, state in ((8192, "warm"), (1024, "warm"), (1024, "flushed")):
        group = shapes[(shapes["width"] == width) & (shapes["cache_state"] == state)]
        for dtype, cell in zip(TYPES, row(page, f"{width}², {state}"), strict=True):
            fastest = group[group["dtype"] == dtype].nlargest(1, "gbs").iloc[0]
            assert value(cell) == round(fastest["gbs"])
            if cell.count("×") == 1:
                assert cell.startswith(f"{fastest['block_x']:.0f} × {fastest['block_y']:.0f}:")


@pytest.mark.parametrize(
    ("kernel", "variant", "words"),
    [
        ("tex2d_sum", "block-point-clamp", "texture read"),
        ("surf2d_memset", "block-one", "surface memset"),
    ],
)
def test_textures_and_surfaces(
    cells: pd.DataFrame, page: str, kernel: str, variant: str, words: str
) -> None:
    mine = cells[
        (cells["kernel"] == kernel) & (cells["variant"] == variant) & (cells["dtype"] == "float")
    ]
    for width in (4096, 16384):
        group = mine[mine["width"] == width].sort_values("gbs")
        slow, fast = group.iloc[0], group.iloc[-1]
        best, _, _, slowest = row(page, f"{words}, {width}²")
        assert value(best) == round(fast["gbs"])
        shape, share = slowest.split(", ")
        assert shape == f"{slow['block_x']:.0f} × {slow['block_y']:.0f}"
        assert share == f"{100 * slow['gbs'] / fast['gbs']:.1f} %"


def test_the_table_of_the_readme(cells: pd.DataFrame) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    copies = cells[
        (cells["kernel"] == "copy2d_coalesced")
        & (cells["variant"] == "element")
        & (cells["width"] == 8192)
        & (cells["cache_state"] == "warm")
    ].set_index(["dtype", "block_x", "block_y"])["gbs"]
    for dtype in ("float", "double", "float4"):
        shape, rate, _, square, flat, worst = row(readme, f"{dtype} |")
        x, y = map(int, shape.split(" × "))
        speed = copies[dtype, x, y]
        assert rate.startswith(f"{speed:.0f} ±")
        assert speed >= 0.99 * copies[dtype].max()
        for cost, block in ((square, (16, 16)), (flat, (32, 8))):
            if cost != "none":
                extra = 100 * (speed / copies[(dtype, *block)] - 1)
                percent, half = (float(n) for n in re.findall(r"[\d.]+", cost))
                # The library compares two launches within the repeats that both have.
                assert abs(percent - extra) <= half
        slowest = float(worst.split(" ×")[0])
        assert slowest == pytest.approx(copies[dtype].max() / copies[dtype].min(), rel=0.05)


def test_the_kernels_of_the_gallery() -> None:
    axes = ["TILE", "ROWS", "PAD", "block_x"]
    gallery = cells_of("nvidia-h200-gallery", axes)
    page = (ROOT / "docs/gallery.md").read_text("utf-8")
    transposes = gallery[gallery["kernel"] == "transpose"]
    for words, variant, pad in (
        ("transpose, naive", "naive", 0),
        ("transpose, tile", "tile", 0),
        ("transpose, padded tile", "tile", 1),
        ("transpose, padded tile, diagonal", "tile-diagonal", 1),
    ):
        mine = transposes[(transposes["variant"] == variant) & (transposes["PAD"] == pad)]
        for dtype in ("float", "double"):
            best = mine[mine["dtype"] == dtype].nlargest(1, "gbs").iloc[0]
            gbs, relative, launch = row(page, f"{words} | {dtype}")[1:]
            assert value(gbs) == round(best["gbs"])
            assert relative == f"{100 * best['gbs'] / best['memcpy']:.0f} %"
            assert launch == ", ".join(f"{axis} {best[axis]:.0f}" for axis in axes)


def test_dot_products_beside_cublas(cells: pd.DataFrame) -> None:
    page = (ROOT / "docs/other-tools.md").read_text("utf-8")
    for dtype in ("float", "double"):
        for n in (2**20, 2**28):
            here = cells[(cells["dtype"] == dtype) & (cells["width"] == n)]
            best = here.groupby("kernel")["gbs"].max()
            found = [float(cell) for cell in row(page, f"{dtype} | {n:,} |")[1:]]
            assert found == [round(best["dot_resident"]), round(best["dot_cublas"])]


def test_copies_in_a_graph() -> None:
    """The sentences of docs/method.md, which no template makes."""
    recorded = ROOT / "reports/reference/nvidia-h200/benchmarks/copies.json"
    slower: dict[int, list[float]] = {}
    for copies in json.loads(recorded.read_text("utf-8"))["rows"]:
        ratio = copies["gbs"]["stream"] / copies["gbs"]["graph"]
        slower.setdefault(copies["bytes"], []).append(ratio)
    page = " ".join((ROOT / "docs/method.md").read_text("utf-8").split())
    mib = 2**20
    for sizes, words in (
        ([512 * mib, 640 * mib, 1024 * mib, 3072 * mib], "{} to {} times as long in a graph"),
        ([78_570_496], "not a multiple of 4,096, {} to {} times"),
    ):
        ratios = [ratio for size in sizes for ratio in slower[size]]
        assert words.format(f"{min(ratios):.2f}", f"{max(ratios):.2f}") in page
    for size in (448 * mib, 768 * mib):
        assert slower[size] == pytest.approx([1.0, 1.0], abs=0.01)
    assert all(max(slower[n * mib]) < 1.0 for n in (1, 4, 8, 16))
