"""An axis may be called what its author likes: no column inside has its name."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import typst
from conftest import ROOT
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import Limits, best_of_dataset
from gpushmoo.analysis.fastest import axes_of
from gpushmoo.analysis.peak import peak_rows
from gpushmoo.analysis.run_quality import COLUMNS, write_verdict
from gpushmoo.core.errors import ConfigError
from gpushmoo.core.schema import TAKEN, axis_fault, cell_schema
from gpushmoo.planning.config import load_config
from gpushmoo.storage.dataset import read_cells, read_medians
from gpushmoo.storage.store import read_shard, write_parquet
from gpushmoo.storage.wholefile import read_complete
from matplotlib import pyplot as plt
from rendering import KINDS, conclude
from synthetic import write_shard

SHAPES = {"block_x": [8, 16, 32, 64], "block_y": [4, 8, 16]}
# Names that readers of Parquet and tuples of rows take for themselves, or that are no names at all.
UNFIT = [
    "__filename",
    "__fragment_index",
    "__index_level_0__",
    "_1",
    "_fields",
    "",
    " ",
    "a b",
    "a,b",
    "a=1",
    "ä",
    "#samples",
    "#shard",
    "9a",
    "a\n",
    "a.b",
    "a{b}",
    "x" * 65,
    3,
    None,
]
# Of pandas, Python and SQL, and what columns were called inside before they had a mark.
FOREIGN = [
    "index",
    "columns",
    "values",
    "count",
    "size",
    "shape",
    "T",
    "loc",
    "iloc",
    "name",
    "items",
    "keys",
    "get",
    "pop",
    "sum",
    "min",
    "max",
    "mean",
    "level_0",
    "variable",
    "hue",
    "style",
    "class",
    "None",
    "lambda",
    "select",
    "Order",
    "group",
    "table",
    "left",
    "right",
    "samples",
    "bytes_touched",
    "kind",
    "tied",
    "label",
    "best",
    "up",
    "down",
]


@pytest.mark.parametrize("name", UNFIT)
def test_what_is_no_name_or_is_taken_by_tools_is_refused(name: object) -> None:
    assert "must be called by a letter" in str(axis_fault([name]))


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_a_column_of_the_result_is_refused_in_any_case(name: str) -> None:
    for spelled in (name, name.upper(), name.title()):
        assert "has the name of a column of the result" in str(axis_fault(["x", spelled]))
        with pytest.raises(ValueError, match="has the name of a column"):
            cell_schema([spelled])


def test_case_tells_no_axes(make_kernel: Callable[..., Path], raw_config: dict[str, Any]) -> None:
    assert "axes 'Tile' and 'tile' differ in case alone" in str(axis_fault(["Tile", "x", "tile"]))
    assert axis_fault(["tile", "x", "tile"]) is None
    workload = make_kernel("mine", "", "") / "workload.py"
    workload.write_text(workload.read_text().replace("block_x", "BLOCK_X"))
    raw_config |= {"kernel_folders": [str(workload.parents[1])], "only": ["mine", "transpose"]}
    raw_config["kernels"] = {"mine": {}, "transpose": {}}
    with pytest.raises(ConfigError, match=r"differ in case alone.* \(mine, transpose\)"):
        load_config(raw_config, ROOT)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    for dtype in ("float", "double"):
        path = folder / f"copy-{dtype}.parquet"
        write_shard(path, "copy2d_coalesced", dtype, variants=("element",), axes=SHAPES)
    return folder


def with_axes(folder: Path, out: Path, names: Sequence[str]) -> list[Path]:
    """The shards with axes of these names beside their own."""
    paths = []
    for path in sorted(folder.glob("*.parquet")):
        table, metadata = read_shard(path)
        paths.append(out / path.name)
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
    best = best_of_dataset(out / "dataset", peak_rows(cells, KINDS), (), Limits({}, 1024))
    conclude(cells, best, out)
    with (out / "said").open("w") as terminal:
        read = read_cells(out / "dataset", columns=COLUMNS)
        write_verdict(read, out / "verdict.txt", False, {}, terminal)
    return {
        "axes": axes_of(cells),
        "best": best.to_pandas().to_dict("records"),
        **{p.name: read_complete(p).decode() for p in (*out.glob("*.json"), out / "verdict.txt")},
    }


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures and pages are made up, but not written, which would take far longer."""
    monkeypatch.setattr(typst, "compile", lambda *_, **__: b"")
    monkeypatch.setattr(plt.Figure, "savefig", lambda _, out, **__: out.write(b"<svg></svg>"))


@pytest.mark.usefixtures("unrendered")
def test_what_is_concluded_does_not_depend_on_names(shards: Path, tmp_path: Path) -> None:
    names = [n for n in FOREIGN if axis_fault([*SHAPES, n]) is None]
    # Axes are named in the order of their names, which stays.
    innocent = {n: f"{'ac'[n > 'block_x']}{i:05d}z" for i, n in enumerate(sorted(names))}
    found = []
    for folder, called in (("named", names), ("innocent", [innocent[n] for n in names])):
        out = tmp_path / folder
        made = with_axes(shards, out / "shards", called)
        found.append(json.dumps(concluded(made, out), default=str))
    back = {place: name for name, place in innocent.items()}
    assert found[0] == re.sub("[ac][0-9]{5}z", lambda m: back[m[0]], found[1])
    sql = f"select * from read_parquet('{tmp_path}/named/dataset/**/*.parquet')"
    assert set(names) <= set(duckdb.sql(sql).columns)
