"""The rule "tiles as wide as a partition" over other widths; the index computation."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from gpushmoo.chapters.contract import ChapterError, ChapterRun
from gpushmoo.core.errors import LaunchRefusedError
from gpushmoo.core.space import Cell, Problem
from gpushmoo.devices.machine_code.cubins import compile_cubin
from gpushmoo.devices.machine_code.sass import _entries, listing
from gpushmoo.report.chapter_pages import Measured
from gpushmoo.report.tables import Namer
from gpushmoo.workloads.loader import load_kernel
from tesla_c1060.chapter import CHAPTER, DEVICE
from tesla_c1060.pages import page
from tesla_c1060.predictions import measured_widths, simulated_widths
from tesla_c1060.stages import make_table

C1060 = ROOT / "reports/chapters/tesla_c1060/devices" / "tesla-c1060.yaml"
CHAPTER_FOLDER = ROOT / "reports/chapters/tesla_c1060"
ASKED: dict[str, Any] = {
    "size": 512,
    "row_bytes": [128, 256, 1024],
    "pad_bytes": [0, 64],
    "num_partition": [8, 30],
}
KERNEL = load_kernel(ROOT / "kernels/block_tiles").workload


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    file = tmp_path_factory.mktemp("tiles") / "tiles.parquet"
    asked = {"kind": "tiles", "file": C1060, "levels": ["bus", "partitions", "banks"], **ASKED}
    make_table(asked, file, 2)
    return pd.read_parquet(file)


def test_every_width_and_pitch_is_simulated_where_addresses_matter(cells: pd.DataFrame) -> None:
    assert len(cells) == 2 * 2 * 3 * 2 * 2
    assert set(cells["level"]) == {"partitions", "banks"}
    assert set(cells["variant"]) == {"800 MHz"}
    assert set(cells["tiles"]) == {512}


def test_a_tile_as_wide_as_a_partition_does_not_feel_the_pitch(cells: pd.DataFrame) -> None:
    """With 8 blocks of float and queues alone; wider rows do, and banks tell of other things."""
    queued = cells[(cells["level"] == "partitions") & (cells["num_partition"] == 8)]
    gbs = queued[queued["dtype"] == "float"].set_index(["row_bytes", "pad_bytes"])["bandwidth_gbs"]
    assert gbs[256, 0] == pytest.approx(gbs[256, 64], rel=0.005)
    assert gbs[1024, 64] < 0.99 * gbs[1024, 0]
    told = simulated_widths(cells)
    assert told["widths"] == ["128 B", "256 B", "1024 B"]
    assert [(r["dtype"], r["blocks"]) for r in told["rows"][:4]] == [
        *(("float", "8"), ("float", "30"), ("double", "8"), ("double", "30"))
    ]
    assert (
        told["rows"][0]["gbs"][1]
        == f"{gbs[256, 0]:.1f} ({gbs[256].min():.1f}–{gbs[256].max():.1f})"
    )


def judged(gbs: dict[tuple[int, int], float]) -> str:
    rows = [
        {"device": "D", "variant": "1 MHz", "level": "banks", "dtype": "float", "num_partition": 8}
        | {"row_bytes": width, "pad_bytes": pad, "bandwidth_gbs": value}
        for (width, pad), value in gbs.items()
    ]
    [sentence] = simulated_widths(pd.DataFrame(rows))["judged"]
    return str(sentence)


def test_the_rule_is_judged_by_the_best_width_at_the_same_pitch() -> None:
    text = judged(
        {(256, 0): 99.0, (512, 0): 100.0, (256, 64): 80.0, (512, 64): 50.0, (128, 64): 100.0}
    )
    assert "the best or within 2 % of it in 1 of 2 cases" in text
    assert "at worst 20 % slower; another width is at worst 50 % slower" in text
    assert "or others to compare with, were not tried" in judged({(256, 0): 1.0})


# On a device


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_the_kernel_copies_every_element_once_whatever_the_pitch(dtype: str) -> None:
    """Its arithmetic in NumPy: rows of a pitch, the last one shorter, tiles hanging over."""
    for row_bytes, pad_bytes in product(KERNEL.axes["row_bytes"], KERNEL.axes["pad_bytes"]):
        axes = (("num_partition", 3), ("pad_bytes", pad_bytes), ("row_bytes", row_bytes))
        launch = KERNEL.launch(Cell("block_tiles", dtype, "exact", Problem(48, 70), axes))
        elements, pitch, tiles_x, tiles = (int(a) for a in launch.args[2:])  # type: ignore[arg-type]
        tile = np.arange(tiles)[:, None, None]
        x = tile % tiles_x * launch.block[0] + np.arange(launch.block[0])[None, None, :]
        y = tile // tiles_x * launch.block[1] + np.arange(launch.block[1])[None, :, None]
        place = y * pitch + x
        copied = np.sort(place[(x < pitch) & (place < elements)])
        assert np.array_equal(copied, np.arange(48 * 70))
        assert launch.threads == 512


def test_a_width_in_which_elements_do_not_come_out_even_is_refused() -> None:
    for row_bytes, pad_bytes in ((4, 0), (96, 0), (128, 4)):
        axes = (("num_partition", 3), ("pad_bytes", pad_bytes), ("row_bytes", row_bytes))
        with pytest.raises(LaunchRefusedError, match="no tile of 512 elements of 8 bytes"):
            KERNEL.launch(Cell("block_tiles", "double", "exact", Problem(48, 70), axes))


def measured_cells() -> pd.DataFrame:
    rows = [
        {"kernel": "block_tiles", "status": "ok", "device_name": "D", "variant": "exact"}
        | {"height": 8192, "width": 8192, "cache_state": "flushed", "dtype": dtype}
        | {"launch_kind": "back_to_back"}
        | {"num_partition": 8, "row_bytes": width, "pad_bytes": pad, "bandwidth_gbs": width + pad}
        for dtype, width, pad in product(("float", "double"), (128, 256), (0, 64))
    ]
    return pd.DataFrame(rows)


def test_measured_widths_stand_on_the_page_as_the_simulated_do() -> None:
    cells = measured_cells()
    told = measured_widths(cells, Namer(cells))
    assert told is not None
    assert [r["level"] for r in told["rows"]] == ["D, measured: 8192²"] * 2
    assert told["rows"][0]["gbs"] == ["128.0 (128.0–192.0)", "256.0 (256.0–320.0)"]
    assert measured_widths(cells.assign(status="timeout"), Namer(cells)) is None


# The index computation


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_only_the_index_is_between_the_clocks(arch: str) -> None:
    source = (ROOT / "experiments/gpu/index_computation.cu").read_text(encoding="utf-8")
    code = listing(compile_cubin(source, "index", ("-std=c++17",), arch).code)
    loops = {}
    for entry, instructions in _entries(code).items():
        clocks = [i for i, x in enumerate(instructions) if "SR_CLOCK" in x.operands]
        assert len(clocks) == 2, entry
        timed = instructions[clocks[0] : clocks[1]]
        [back] = [
            (target - clocks[0], i)
            for i, x in enumerate(timed)
            if x.name == "BRA"
            for target in x.targets
            if clocks[0] < target <= clocks[0] + i
        ]
        loops[entry] = [(x.name, *x.flags) for x in timed[back[0] : back[1]]]
    names = {entry: [x[0] for x in loop] for entry, loop in loops.items()}
    assert set(names) == {"bare", "exact", "reciprocal"}
    assert names["reciprocal"].count("F2I") == 1
    assert any("HI" in x for x in loops["exact"])
    for loop in names.values():
        assert not {"LDG", "STG", "LDS", "STS", "ATOMS", "BAR"} & set(loop)
    assert len(names["bare"]) < min(len(names["exact"]), len(names["reciprocal"]))


INDEX = {
    "device": {"name": "NVIDIA H200"},
    "index": [
        {"variant": "exact", "threads": 512, "warps": 16, "loop_cycles": 100.0}
        | {"bare_cycles": 20.0, "index_cycles": 80.0}
    ],
}


def test_a_recorded_index_computation_stands_on_the_page(tmp_path: Path) -> None:
    def planned() -> Any:
        run = ChapterRun(Path("results/r"), 1, {}, Path("record"), tmp_path)
        return CHAPTER.plan({}, run).reads

    assert planned() == {}
    file = tmp_path / "record" / "benchmarks" / "index.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(INDEX), encoding="utf-8")
    assert planned() == {"index": ("record/benchmarks/index.json",)}
    empty = pd.DataFrame(columns=["status", "kernel", "device_name", "cache_state", "launch_kind"])
    facts = page(Measured(empty, [], [], {"index": [file]}, CHAPTER_FOLDER, {}, {})).facts
    assert facts is not None
    [told] = facts["index"]
    assert (told["device"], told["published"]) == ("NVIDIA H200", "18.2")
    assert list(told["rows"][0].values()) == ["exact", "512", "100.0", "20.0", "80.0", "5.00"]


def test_tiles_that_the_device_cannot_have_are_refused() -> None:
    run = ChapterRun(Path("results/r"), 1, {}, None, ROOT)
    simulate = {DEVICE: {"levels": ["bus"]}}
    for changed, words in (
        ({"row_bytes": [64]}, "half-warps of 16 threads do not fit tiles 8 elements wide"),
        ({"row_bytes": [8192]}, "has rows of 8192 bytes"),
        ({"size": 100}, "do not divide an array 100"),
    ):
        with pytest.raises(ChapterError, match=words):
            CHAPTER.plan({"simulate": simulate, "tiles": ASKED | changed}, run)
