"""An axis may be called what its author likes: no column inside has its name."""

from __future__ import annotations

import ast
import json
import keyword
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import typst
from conftest import ROOT
from fakes import FOLDER, INFO
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import Limits, best_of_dataset
from gpushmoo.analysis.ceiling import ceiling_rows
from gpushmoo.analysis.fastest import axes_of
from gpushmoo.analysis.run_quality import COLUMNS, write_verdict
from gpushmoo.core.schema import (
    BEST_COLUMNS,
    CORE_COLUMNS,
    DERIVED,
    TAKEN,
    Status,
    axis_fault,
    cell_schema,
)
from gpushmoo.core.space import Cell, Problem
from gpushmoo.figures.curve import curve
from gpushmoo.figures.heatmap import heatmap
from gpushmoo.measuring.events import CellRun, ShardResult
from gpushmoo.measuring.shard_file import cell_table
from gpushmoo.planning.config import load_config
from gpushmoo.planning.config_schema import ConfigError
from gpushmoo.storage.dataset import read_cells, read_medians
from gpushmoo.storage.store import read_shard, write_parquet
from gpushmoo.storage.wholefile import read_summed
from gpushmoo.workloads.contract import Launch
from matplotlib import pyplot as plt
from rendering import KINDS, conclude
from streamed_dot.analysis import plot_series
from synthetic import write_shard

LIBRARY = ROOT / "workflow/scripts/gpushmoo"
# What the stages after measuring are made of.
STAGES = [
    LIBRARY / "measuring/shard_file.py",
    *(
        f
        for name in ("core", "storage", "analysis", "figures", "report")
        for f in (LIBRARY / name).rglob("*.py")
    ),
    *(ROOT / "reports/chapters").rglob("*.py"),
]
# Of the project's kernels below.
SHAPES = {"block_x": [8, 16, 32, 64], "block_y": [4, 8, 16]}
BLOCKS = {"num_partition": [1, 2, 4, 8, 16, 30, 32, 33, 66, 132, 133, 264, 528, 529]}
PEAKS = {"block_x": [128, 1024], "unroll": [1], "passes": [4]}
DOTS = {
    "streams": [1, 4],
    "min_per_stream": [4096],
    "blocks_per_stream": [32],
    "threads": [64],
    "chunk": [0],
    "host_percent": [0, 50, 100],
}
OWN_AXES = {*SHAPES, *BLOCKS, *PEAKS, *DOTS}
# No axis of the project's, nor a name of anything.
NEW_AXIS = "a00000z"
# Names that readers of Parquet and tuples of rows take for themselves, or that are no names at all.
UNFIT = [
    *("__filename", "__fragment_index", "__index_level_0__", "_1", "_fields", "", " ", "a b"),
    *("a,b", "a=1", "ä", "#samples", "#shard", "9a", "a\n", "a.b", "a{b}", "x" * 65, 3, None),
]
# Of pandas, Python and SQL; beside them what columns were called inside before they had a mark.
FOREIGN = [
    *("index", "columns", "values", "count", "size", "shape", "T", "loc", "iloc", "name", "items"),
    *("keys", "get", "pop", "sum", "min", "max", "mean", "level_0", "variable", "hue", "style"),
    *("class", "None", "lambda", "select", "Order", "group", "table", "left", "right"),
    *("samples", "bytes_touched", "kind", "tied", "label", "best", "up", "down"),
]


# What is refused


@pytest.mark.parametrize("name", UNFIT)
def test_what_is_no_name_or_is_taken_by_tools_is_refused(name: object) -> None:
    assert "must be called by a letter" in str(axis_fault([name]))


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_a_column_of_the_result_is_refused_in_any_case(name: str) -> None:
    for spelled in (name, name.upper(), name.title()):
        assert "has the name of a column of the result" in str(axis_fault(["x", spelled]))
        with pytest.raises(ValueError, match="has the name of a column"):
            cell_schema([spelled])


def test_axes_that_differ_in_case_alone_are_refused() -> None:
    assert "axes 'Tile' and 'tile' differ in case alone" in str(axis_fault(["Tile", "x", "tile"]))
    assert axis_fault(["tile", "x", "tile"]) is None


def test_kernels_whose_axes_collide_are_named(
    make_kernel: Callable[..., Path], raw_config: dict[str, Any]
) -> None:
    workload = make_kernel("mine", "", "") / "workload.py"
    workload.write_text(workload.read_text().replace("block_x", "BLOCK_X"))
    raw_config |= {"kernel_folders": [str(workload.parents[1])], "only": ["mine", "transpose"]}
    raw_config["kernels"] = {"mine": {}, "transpose": {}}
    with pytest.raises(ConfigError, match=r"differ in case alone.* \(mine, transpose\)"):
        load_config(raw_config, ROOT)


# What is concluded


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels of every kind of figure and finding."""
    folder = tmp_path_factory.mktemp("plain")
    for dtype in ("float", "double"):
        for kind, kernel, variant, axes in (
            ("copy", "copy2d_coalesced", "element", SHAPES),
            ("blocks", "block_eq_partition", "exact", BLOCKS),
        ):
            path = folder / f"{kind}-{dtype}.parquet"
            write_shard(path, kernel, dtype, variants=(variant,), axes=axes)
    for kernel in KINDS:
        sizes = [Problem(2**i, 2**i) for i in (9, 10, 12, 14)]
        path = folder / f"peak-{kernel}.parquet"
        write_shard(path, kernel, "float4", problems=sizes, axes=PEAKS)
    mappings = ("row-place", "tile8-place")
    write_shard(folder / "image.parquet", "surf2d_memset", "float", axes=SHAPES, variants=mappings)
    sums = ("block-point-clamp", "block-point-clamp-written")
    write_shard(folder / "sum.parquet", "tex2d_sum", "float", axes=SHAPES, variants=sums)
    sizes = [Problem(1, 2**i) for i in (10, 20)]
    write_shard(folder / "dot.parquet", "dot_streamed", "float", problems=sizes, axes=DOTS)
    return folder


def with_axes(folder: Path, kinds: Sequence[str], out: Path, names: Sequence[str]) -> list[Path]:
    """The shards of these `kinds`, those of copies with axes of these names beside their own."""
    paths = []
    for path in sorted(p for p in folder.glob("*.parquet") if p.stem.split("-")[0] in kinds):
        table, metadata = read_shard(path)
        paths.append(out / path.name)
        if path.name.startswith("copy"):
            values = np.random.default_rng(1).integers(1, 5, (len(names), len(table)))
            new = {n: v for n, v in zip(names, values, strict=True) if n not in metadata["axes"]}
            metadata = {**metadata, "axes": sorted([*new, *metadata["axes"]])}
            columns = {**{n: table.column(n) for n in table.column_names}, **new}
            table = pa.table(columns, schema=cell_schema(metadata["axes"]))
        write_parquet(table, paths[-1], metadata)
    return paths


def concluded(shards: Sequence[Path], out: Path) -> dict[str, Any]:
    """All that the stages say of the shards."""
    with pytest.MonkeyPatch.context() as patch:
        # Axes that no cell was measured with are refused.
        patch.setattr("gpushmoo.analysis.aggregate.fault_of", lambda *_: None)
        aggregate(shards, out / "dataset")
    cells = read_medians(out / "dataset")
    best = best_of_dataset(out / "dataset", ceiling_rows(cells, KINDS), (), Limits({}, 1024))
    conclude(cells, best, out)
    with (out / "said").open("w") as terminal:
        read = read_cells(out / "dataset", columns=COLUMNS)
        write_verdict(read, out / "verdict.txt", False, {}, terminal)
    dots = plot_series(cells, "ms") if "host_percent" in cells else cells.iloc[:0]
    return {
        "axes": axes_of(cells[cells["kernel"] == "copy2d_coalesced"]),
        **{p.name: read_summed(p).decode() for p in (*out.glob("*.json"), out / "verdict.txt")},
        **{
            name: frame.to_dict("records")
            for name, frame in (("best", best.to_pandas()), ("dots", dots))
        },
    }


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures and pages are made up, but not written, which would take far longer."""
    monkeypatch.setattr(typst, "compile", lambda *_, **__: b"")
    monkeypatch.setattr(plt.Figure, "savefig", lambda *_, **__: None)


ALL_KINDS = ("copy", "blocks", "peak", "image", "sum", "dot")
# Ways to columns that stages use; each says on which frame.
WAYS = (
    *("__getitem__", "__setitem__", "assign", "drop_duplicates", "groupby", "insert", "iterrows"),
    *("itertuples", "join", "merge", "pivot_table", "rename", "reset_index", "set_index"),
    *("sort_values", "to_dict"),
)


@pytest.mark.usefixtures("unrendered")
def test_beside_axes_no_column_has_a_name_that_an_axis_may_have(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else give what is derived a name that begins with schema.DERIVED."""
    frames = set()

    def look(way: Callable[..., Any]) -> Callable[..., Any]:
        def looked(frame: pd.DataFrame, *args: Any, **options: Any) -> Any:
            result = way(frame, *args, **options)
            for seen in (frame, result):
                if isinstance(seen, pd.DataFrame) and NEW_AXIS in seen.columns:
                    frames.add((*seen.columns, *filter(None, seen.index.names)))
            return result

        return looked

    for name in WAYS:
        monkeypatch.setattr(pd.DataFrame, name, look(getattr(pd.DataFrame, name)))
    concluded(with_axes(shards, ALL_KINDS, tmp_path / "shards", [NEW_AXIS]), tmp_path)
    columns = set().union(*frames)
    assert {f"{DERIVED}samples", f"{DERIVED}bytes_touched", f"{DERIVED}kind"} <= columns
    plain = {c for c in columns if axis_fault([c]) is None}
    assert plain <= {*OWN_AXES, NEW_AXIS}


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All of a module's syntax."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def column_words(path: Path) -> set[str]:
    """Every text by which a module looks something up, and every new column that it names."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            found.add(str(node.slice.value))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".assign"):
            found |= {str(k.arg) for k in node.keywords}
    return found


def all_words(path: Path) -> set[str]:
    """Every name that a module has, and every text in it."""
    found = set()
    for node in nodes(path):
        for part in ("value", "attr", "id", "arg", "name"):
            found.add(str(getattr(node, part, None)))
    return found


def fit(names: set[str]) -> Iterator[list[str]]:
    """Those that an axis may have, in as few lists as there must be for case to tell none apart.

    Without the project's own: beside `with_axes` they have values already.
    """
    left = sorted(n for n in names - OWN_AXES if axis_fault([*OWN_AXES, n]) is None)
    while left:
        first = {name.lower(): name for name in left}
        yield sorted(first.values())
        left = [name for name in left if first[name.lower()] != name]


FEW = set().union(*map(column_words, STAGES)) | set(FOREIGN) | set(BEST_COLUMNS)
MANY = {
    *set().union(*map(all_words, STAGES)),
    *dir(pd.DataFrame),
    *dir(pd.Series),
    *keyword.kwlist,
    *(word for (word,) in duckdb.sql("select keyword_name from duckdb_keywords()").fetchall()),
    *(f"{name}{end}" for name in CORE_COLUMNS for end in ("_x", "_y", "_stored", "_plain", "_1")),
}
HUNT = pytest.mark.hunt


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        *(pytest.param(("copy",), names, id=f"few-{i}") for i, names in enumerate(fit(FEW))),
        *(
            pytest.param(ALL_KINDS, names[i : i + 250], id=f"many-{n}-{i}", marks=HUNT)
            for n, names in enumerate(fit(MANY))
            for i in range(0, len(names), 250)
        ),
    ],
)
def test_what_is_concluded_does_not_depend_on_names(
    shards: Path, tmp_path: Path, kinds: tuple[str, ...], names: list[str]
) -> None:
    # Hundreds of columns are slow, as pandas says.
    warnings.simplefilter("ignore", pd.errors.PerformanceWarning)
    # Axes are named in the order of their names, which stays.
    innocent = {n: f"{'ac'[n > 'block_x']}{i:05d}z" for i, n in enumerate(sorted(names))}
    found = []
    for folder, called in (("named", names), ("innocent", [innocent[n] for n in names])):
        out = tmp_path / folder
        made = with_axes(shards, kinds, out / "shards", called)
        found.append(json.dumps(concluded(made, out), default=str))
    back = {place: name for name, place in innocent.items()}
    assert found[0] == re.sub("[ac][0-9]{5}z", lambda m: back[m[0]], found[1])
    sql = f"select * from read_parquet('{tmp_path}/named/dataset/**/*.parquet')"
    assert set(names) <= set(duckdb.sql(sql).columns)


# Figures over an axis of such a name


def told_of(value: Any) -> Any:
    """Numbers and texts as they are, of anything else its type."""
    if isinstance(value, np.ndarray | pd.Series | list | tuple):
        return [told_of(v) for v in np.asarray(value, dtype=object).ravel()]
    return str(value) if isinstance(value, str | int | float) else str(type(value))


def figures(cells: pd.DataFrame, x: str, y: str, out: Path) -> list[str]:
    """What a heat map and a curve over these axes say, and how much they draw of each kind."""
    heatmap(cells, x, y, ["float", "double"], out / "heatmap.svg")
    curve(cells, x, "threads", out / "curve.svg")
    svgs = [read_summed(out / f"{n}.svg").decode() for n in ("heatmap", "curve")]
    drawn = [str({kind: svg.count(f"<{kind}") for kind in ("use", "image")}) for svg in svgs]
    return [*drawn, *(read_summed(out / f"{n}.json").decode() for n in ("heatmap", "curve"))]


# What seaborn and pandas might take for a name of their own.
DRAWN = ["hue", "style", "size", "index", "columns", "values", "variable", "level_0", "x", "label"]


def test_a_figure_over_an_axis_shows_its_values_whatever_it_is_called(
    shards: Path, tmp_path: Path
) -> None:
    aggregate(with_axes(shards, ["copy"], tmp_path / "shards", []), tmp_path / "dataset")
    cells = read_medians(tmp_path / "dataset")
    plain = figures(cells, "block_x", "block_y", tmp_path)
    for x, y in zip(DRAWN[:5], reversed(DRAWN), strict=False):
        called = cells.rename(columns={"block_x": x, "block_y": y})
        notes = [told.replace("block_x", x).replace("block_y", y) for told in plain[2:]]
        drawn = figures(called, x, y, tmp_path)
        # A block's usual shapes are marked on a block alone.
        assert drawn[1] == plain[1]
        for note, expected in zip(drawn[2:], notes, strict=True):
            words = expected.replace("the block's shape", f"{x} and {y}").replace(
                "shapes", "points"
            )
            assert note in (expected, words)


def test_rows_hold_the_values_of_axes_beside_the_others() -> None:
    launch = Launch("v", (1, 1, 1), (32, 1, 1), (), 7)
    for names in fit(FEW):
        params = tuple((name, i) for i, name in enumerate(names))
        run = CellRun(Cell("tiny", "float", "v", Problem(4, 8), params), launch)
        run.end(Status.OK)
        run.samples_s = [1.0, 2.0, 3.0]
        [row] = cell_table(ShardResult({"": run}), FOLDER.workload, INFO, names).to_pylist()
        assert {name: row.pop(name) for name in names} == dict(params)
        assert set(row) == CORE_COLUMNS
        assert (row["blocks"], row["threads_per_block"], row["median_s"]) == (1, 32, 2.0)
