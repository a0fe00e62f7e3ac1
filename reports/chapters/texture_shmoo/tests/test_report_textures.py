"""The report's pages on the second document, rendered from shards that no device measured."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT
from gpushmoo.core.display import bare_interval
from gpushmoo.core.space import Problem
from gpushmoo.storage.store import read_shard
from rendering import HOSTILE, Rendered, render
from synthetic import GPU, WRITTEN, write_shard

PUBLISHED: dict[str, Any] = json.loads(
    (ROOT / "reports/chapters/texture_shmoo/published/textures.json").read_text()
)
SIDES = (4, 8, 12, 16, 22, 32, 64)
AXES = {"block_x": SIDES, "block_y": SIDES}
PEAK_AXES = {"block_x": [128], "unroll": [1], "passes": [4]}
PROBLEM = Problem(4096, 4096)
TEXTURES = ("block-point-clamp", "row-point-clamp", "block-point-clamp-written")
SURFACES = ("block-one", "row-one", "block-place")
CHECKED = {"failure": None, "entries": []}
CODE = {"arch": "sm_90", "variants": dict.fromkeys(TEXTURES, CHECKED)}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both kernels of the document, and those of the ceiling."""
    folder = tmp_path_factory.mktemp("shards")
    for kernel, dtype, variants in (
        ("tex2d_sum", "float", TEXTURES),
        ("tex2d_sum", "unorm8x4", TEXTURES),
        ("surf2d_memset", "float", SURFACES),
    ):
        path = folder / f"{kernel}-{dtype}.parquet"
        write_shard(path, kernel, dtype, problems=[PROBLEM], axes=AXES, variants=variants)
    for kernel in ("global_load", "global_store"):
        path = folder / f"{kernel}.parquet"
        write_shard(path, kernel, "float", problems=[PROBLEM], axes=PEAK_AXES, variants=["plain"])
    return folder


def with_code(cells: pd.DataFrame, metadata: dict[str, Any]) -> None:
    """As on CUDA, where each measuring job looks at the machine code."""
    if metadata["params"]["folder"].endswith("tex2d_sum"):
        metadata["machine_code"] = CODE


@pytest.fixture(scope="module")
def found(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return render(shards, tmp_path_factory.mktemp("rendered"), with_code)


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    folder = tmp_path_factory.mktemp("cpu")
    info = replace(GPU, backend="opencl", kind="cpu", name="A CPU")
    write_shard(folder / "1.parquet", "tex2d_sum", "float", axes=AXES, variants=TEXTURES, info=info)
    return render(folder, tmp_path_factory.mktemp("rendered"))


def letters(text: str) -> str:
    """Without spaces and hyphens, which a paragraph's lines bring in, and quotes of any style."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def times_of(shards: Path, name: str, variant: str) -> pd.DataFrame:
    cells = read_shard(shards / name)[0].to_pandas()
    return cells[(cells["variant"] == variant) & (cells["status"] == "ok")]


# The second document beside ours


def test_published_values_stand_before_ours(found: Rendered, shards: Path) -> None:
    published = [f"{v['device']} {v['image']} {v['gbs']}" for v in PUBLISHED["values"]]
    ours = []
    for name, variant in (
        ("tex2d_sum-float.parquet", "block-point-clamp"),
        ("surf2d_memset-float.parquet", "block-one"),
    ):
        cells = times_of(shards, name, variant)
        ours.append(bare_interval(cells.loc[cells["median_s"].idxmin()]))
    text = letters(found.text)
    start = text.index(letters("The second document beside ours"))
    places = [text.index(letters(said), start) for said in [*published, *ours]]
    assert places == sorted(places)


def test_everything_lost_or_mistaken_is_named(found: Rendered) -> None:
    text = letters(found.text)
    for lost in PUBLISHED["lost"]:
        assert letters(lost) in text
    for slip in PUBLISHED["slips"]:
        for words in (slip["slip"], slip["corrected"]):
            assert letters(words) in text


def test_share_is_of_this_runs_peaks(found: Rendered, shards: Path) -> None:
    rows = found.chapter("texture_shmoo")["ours"]
    for row, peak, name, variant in (
        (rows[0], "global_load", "tex2d_sum-float.parquet", "block-point-clamp"),
        (rows[1], "global_store", "surf2d_memset-float.parquet", "block-one"),
    ):
        best = times_of(shards, name, variant)["bandwidth_gbs"].max()
        most = times_of(shards, f"{peak}.parquet", "plain")["bandwidth_gbs"].max()
        assert float(row["share"].removesuffix(" %")) == pytest.approx(100 * best / most, rel=0.05)
    assert "of peak" in found.text


def test_stored_sums_and_their_cost_are_shown(found: Rendered) -> None:
    rows = found.chapter("texture_shmoo")["written"]
    assert [r["where"].split(",")[0] for r in rows] == ["float", "unorm8x4"]
    for row in rows:
        assert float(row["ratio"]) == pytest.approx(WRITTEN, rel=0.01)
    assert letters("What storing the sums costs") in letters(found.text)


def test_machine_code_was_looked_at(found: Rendered) -> None:
    said = found.chapter("texture_shmoo")["machine_code"]
    assert f"(sm_90) of every element type and all {len(TEXTURES)} variants" in said
    assert letters(said) in letters(found.text)


def test_stored_sums_never_win_the_findings(found: Rendered, shards: Path) -> None:
    plain = times_of(shards, "tex2d_sum-float.parquet", TEXTURES[0])["bandwidth_gbs"].max()
    stored = times_of(shards, "tex2d_sum-float.parquet", TEXTURES[2])["bandwidth_gbs"].max()
    # They move twice the bytes in a quarter more time.
    assert stored > plain
    [rows] = [k["rows"] for k in found.facts["first_page"]["kernels"] if k["name"] == "tex2d_sum"]
    assert [r["dtype"] for r in rows] == ["float", "unorm8x4"]
    assert not any("written" in r["variant"] for r in rows)
    assert not any("written" in b["variant"] for b in found.facts["best"])


# Where there is less to show


def test_without_these_kernels_there_is_no_page(tmp_path: Path) -> None:
    path = tmp_path / "shards" / "1.parquet"
    axes = {"block_x": [8, 16], "block_y": [4]}
    write_shard(path, "copy2d_coalesced", "float", axes=axes)
    found = render(path.parent, tmp_path)
    assert found.chapter("texture_shmoo") is None
    for words in ("second document", "GTX 280"):
        assert words not in found.text


def test_on_opencl_no_code_and_without_peaks_no_share_is_shown(on_cpu: Rendered) -> None:
    assert "machine code was not looked at" in on_cpu.chapter("texture_shmoo")["machine_code"]
    assert letters("The machine code was not looked at") in letters(on_cpu.text)
    assert "sm_" not in on_cpu.text
    assert {row["share"] for row in on_cpu.chapter("texture_shmoo")["ours"]} == {"—"}
    assert "of peak" not in on_cpu.text.lower()


def test_strings_from_data_are_text(shards: Path, tmp_path: Path) -> None:
    def hostile(cells: pd.DataFrame, metadata: dict[str, Any]) -> None:
        with_code(cells, metadata)
        if metadata["params"]["folder"].endswith("tex2d_sum"):
            # Of two device names, each row says which one it is of.
            cells["device_name"] = metadata["device"]["name"] = HOSTILE
            metadata["machine_code"] = {**CODE, "arch": HOSTILE}

    found = render(shards, tmp_path, hostile)
    # Quotes become typographic, lines break anywhere: what is left of it has to be whole.
    once = letters(HOSTILE)
    where = letters("texture read, 4096²,") + once
    assert letters(found.text).count(where) >= 3
    shown = re.sub(r"\s", "", found.text.replace("“", '"').replace("”", '"'))
    assert re.sub(r"\s", "", HOSTILE) in shown
