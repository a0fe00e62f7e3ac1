"""Simulated cells on the page: the open questions, the tables, other widths of tiles."""

import json
import shutil
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cells import cell
from conftest import ROOT
from gpushmoo.chapters import ChapterRun
from gpushmoo.core.space import Cell, Problem
from gpushmoo.report.pages import Measured
from gpushmoo.report.tables import Namer
from gpushmoo.workloads.loader import load_kernel
from matplotlib.figure import Figure
from tesla_c1060.answers import (
    AHEAD,
    NOT_SHOWN,
    SAME,
    SLIGHT,
    Region,
    conflicts,
    region,
    search_page,
    verdicts,
)
from tesla_c1060.chapter import CHAPTER, RECORD
from tesla_c1060.figures.simulated import evenness, float3, simulated
from tesla_c1060.pages import page
from tesla_c1060.predictions import measured_widths, simulated_widths, tables
from tesla_c1060.search import PORTS, Hypotheses
from tesla_c1060.stages import BINS, make_table
from test_figures import assert_readable
from test_machine import C1060, FILE

CHAPTER_FOLDER = ROOT / "reports/chapters/tesla_c1060"
EMPTY = pd.DataFrame(columns=["status", "kernel", "device_name", "cache_state", "timing_mode"])
PARAMS = {"n_sm": 30, "half_warp": 16, "memory_clock_mhz": 400, "board_clock_mhz": 800}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that is simulated of the C1060, the joint search as recorded."""
    path = tmp_path_factory.mktemp("simulated")
    for kind in ("search", "profile"):
        (file,) = RECORD.glob(f"{FILE.stem}-{kind}-*")
        shutil.copy(file, path / f"{kind}.parquet")
    for kind, levels, sizes, blocks in (
        ("tables", ["bus", "banks"], [256, 512], [1, 2, 8, 30]),
        ("blocks", ["bus", "partitions"], [256], [16, 30, 32]),
    ):
        asked = {"kind": kind, "file": FILE, "levels": levels, "sizes": sizes}
        make_table(asked | {"num_partition": blocks}, path / f"{kind}.parquet", 2)
    return path


@pytest.fixture(scope="module")
def searched(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "search.parquet")


@pytest.fixture(scope="module")
def found(searched: pd.DataFrame) -> Region:
    return region(searched)


def test_one_block_at_a_time_at_the_boards_clock_shows_all_facts(searched: pd.DataFrame) -> None:
    """And nothing else does, with any threshold half or twice what it is."""
    for name, value in (("same", SAME), ("ahead", AHEAD), ("slight", SLIGHT)):
        for share in (value / 2, value, 2 * value):
            found = region(searched, **{name: share})
            if share >= SLIGHT or name != "slight":
                assert found.values("issue") == ["half-warp", "warp"]
            for parameter, one in (("held_blocks", 1), ("memory_clock", "800 MHz")):
                assert set(found.values(parameter)) <= {one}


def test_every_threshold_counts_as_it_is_printed() -> None:
    cells = pd.DataFrame(
        {
            "width": 256,
            "latency_cycles": 400,
            "issue": "warp",
            "port": "none",
            "memory": "one bus at 100 %",
            "memory_clock": "800 MHz",
            "held_blocks": 1,
            "one_block_gbs": [3.06, 3.04, 3.14, 3.16],
            "twice_error": [0.04, 0.06, 0.04, 0.04],
            "doubling_error": [0.06, 0.04, 0.04, 0.04],
            "float_change": [-0.04, -0.06, 0.04, 0.06],
            "double_change": [-0.06, -0.04, 0.2, -0.06],
            "thirty_gain": [0.011, 0.009, 0.5, -0.02],
            "coalesced_gain": [0.001, -0.001, 0.09, 0.11],
            "float3_one": [0.9, 0.6, 0.51, 0.49],
            "float3_three": [0.49, 0.51, 0.3, 0.3],
        }
    )
    shows = region(cells).shows.xs(3, level="commands").astype(int).to_numpy().tolist()
    assert shows == [
        [1, 1, 1, 0, 1, 1, 1, 1],
        [0, 0, 0, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 0, 1],
        [0, 1, 1, 1, 0, 0, 1, 0],
    ]
    by_one = region(cells).shows.xs(1, level="commands")
    assert by_one["float3 worse"].tolist() == [False, False, False, True]


def test_facts_conflict_that_no_machine_shows_together() -> None:
    shows = pd.DataFrame(
        {"a": [1, 1, 0, 0], "b": [1, 0, 1, 0], "c": [0, 1, 1, 0], "d": [0, 0, 0, 0]}
    ).astype(bool)
    assert conflicts(shows) == [("d",), ("a", "b", "c")]
    assert conflicts(shows[["a", "b"]]) == []


def test_each_hypothesis_changes_the_machine_as_it_says() -> None:
    plain = Hypotheses(400, "half-warp", "none", "banks choosing of 32", "400 MHz", 2)
    assert plain.machine(C1060) == C1060
    warp = replace(plain, issue="warp").machine(C1060)
    assert (warp.half_warp, warp.index_cycles, warp.command_cycles) == (32, 72, 2)
    slow = replace(plain, memory="one bus at 80 %", memory_clock="800 MHz").machine(C1060)
    assert slow.beat_cycles == C1060.beat_cycles / 2 / Fraction("0.8")
    ports = {name: replace(plain, port=name).machine(C1060) for name in PORTS}
    assert {(m.sm_per_port, m.port_bytes) for m in ports.values()} == set(PORTS.values())


def test_an_answer_needs_what_it_rests_on(searched: pd.DataFrame, found: Region) -> None:
    assert not any(v["answer"] == NOT_SHOWN for v in verdicts(found))
    for changes, lost in (
        ({"held_blocks": 2}, {0}),
        ({"even_change": -0.2}, {0}),
        ({"memory": "partitions"}, {1}),
        ({"float3_one": 0.3}, {2}),
    ):
        answers = verdicts(region(searched.assign(**changes)))
        assert {i for i, v in enumerate(answers) if v["answer"] == NOT_SHOWN} == lost
    none = search_page(searched.assign(one_block_gbs=9.9))
    assert none["sentences"][0] == "No machine shows all facts."


def test_a_law_of_the_tables_is_told_as_far_as_it_holds(folder: Path) -> None:
    cells = pd.read_parquet(folder / "tables.parquet")
    # What each clock's bus carries at most; the tables need the faster one for what it shows.
    shared = cells[cells["kernel"] == "block_eq_partition"]
    most = shared.groupby("variant")["bandwidth_gbs"].max()
    assert most["400 MHz"] < 51.2 < most["800 MHz"] < 102.4
    told = tables(cells, PARAMS)
    assert told["law"].endswith(
        "at 400 MHz 2 (one bus), 2 (banks); at 800 MHz 8 (one bus), 8 (banks)."
    )
    rows = {(r["level"], r["ratio"]): r["values"] for r in told["doubling"]}
    assert len(rows) == 12
    assert rows["one bus, 400 MHz", "double / float"][2] == "1.85–1.86"
    assert rows["one bus, 800 MHz", "double / float"][2] == "1.98–1.99"
    # Of 1 and 8 blocks there is no half among these.
    assert rows["one bus, 400 MHz", "float / on half the blocks"] == ["—", "1.99–2.00", "—", "—"]
    slow = cells["bandwidth_gbs"].where(cells["num_partition"] != 2, 0.6 * cells["bandwidth_gbs"])
    law = tables(cells.assign(bandwidth_gbs=slow), PARAMS)["law"]
    assert law.endswith("at 400 MHz 1 (one bus), 1 (banks); at 800 MHz 1 (one bus), 1 (banks).")


def test_figures_are_readable_and_their_captions_hold_the_numbers(
    folder: Path, drawn: list[Figure], tmp_path: Path
) -> None:
    cells = pd.read_parquet(folder / "tables.parquet")
    profile = pd.read_parquet(folder / "profile.parquet")
    assert len(profile) == 4 * BINS * 8
    for (dtype, commands), part in profile.groupby(["dtype", "commands"]):
        itemsize = {"float": 4, "double": 8, "float3": 12}[dtype]
        assert part["bursts"].sum() == 2 * 256 * 256 * itemsize * commands / 32
        assert evenness(part) > 0.8
    float3(profile, cells, tmp_path / "float3.svg")
    camped = cells["dtype"].eq("float3") & cells["commands"].eq(1)
    slow = cells.assign(bandwidth_gbs=cells["bandwidth_gbs"].mask(camped, 9.9))
    float3(profile, slow, tmp_path / "camped.svg")
    simulated(pd.read_parquet(folder / "blocks.parquet"), tmp_path / "simulated.svg")
    assert len(drawn) == 3
    for figure in drawn:
        assert_readable(figure)
    text = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.json")}
    assert "so camping does not explain the document's collapse" in text["float3"]
    assert "does not tell camping from commands" in text["camped"]
    assert "Tiles on the busiest SM: 8 of 16, 5 of 30, 8 of 32." in text["simulated"]


def test_pages_tell_what_was_simulated(folder: Path, found: Region) -> None:
    reads = {kind: [folder / f"{kind}.parquet"] for kind in ("tables", "search")}
    facts = page(Measured(EMPTY, [], [], reads, CHAPTER_FOLDER, PARAMS, {})).facts
    assert facts is not None
    [table], [search] = facts["tables"], facts["search"]
    assert table["blocks"] == ["1", "2", "8", "30"]
    assert [(r["level"], r["size"], r["dtype"]) for r in table["shared"]][1:3] == [
        ("one bus, 400 MHz", "256²", "double"),
        ("one bus, 400 MHz", "512²", "float"),
    ]
    assert len(table["coalesced"]) == 8
    # Each parameter shares out the same machines over its values.
    by = iter(search["rows"])
    for parameter in found.shows.index.names:
        rows = [next(by) for _ in found.tried(parameter)]
        assert sum(int(row[-1]) for row in rows) == len(found.all_shown)
    assert len(search["verdicts"]) == 3


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
    asked = {"kind": "tiles", "file": FILE, "levels": ["bus", "partitions", "banks"], **ASKED}
    make_table(asked, file, 2)
    return pd.read_parquet(file)


def test_a_tile_as_wide_as_a_partition_does_not_feel_the_pitch(cells: pd.DataFrame) -> None:
    """With 8 blocks of float and queues alone; wider rows do, and banks tell of other things."""
    queued = cells[(cells["level"] == "partitions") & (cells["num_partition"] == 8)]
    gbs = queued[queued["dtype"] == "float"].set_index(["row_bytes", "pad_bytes"])["bandwidth_gbs"]
    assert gbs[256, 0] == pytest.approx(gbs[256, 64], rel=0.005)
    assert gbs[1024, 64] < 0.99 * gbs[1024, 0]
    told = simulated_widths(cells)
    assert told["widths"] == ["128 B", "256 B", "1024 B"]
    assert [(r["dtype"], r["blocks"]) for r in told["rows"][:4]] == [
        ("float", "8"),
        ("float", "30"),
        ("double", "8"),
        ("double", "30"),
    ]
    assert (
        told["rows"][0]["gbs"][1]
        == f"{gbs[256, 0]:.1f} ({gbs[256].min():.1f}–{gbs[256].max():.1f})"
    )


def test_the_rule_is_judged_by_the_best_width_at_the_same_pitch() -> None:
    def judged(gbs: dict[tuple[int, int], float]) -> str:
        where = {"device": "D", "variant": "1 MHz", "level": "banks", "dtype": "float"}
        rows = [
            where | {"num_partition": 8, "row_bytes": w, "pad_bytes": p, "bandwidth_gbs": value}
            for (w, p), value in gbs.items()
        ]
        return str(simulated_widths(pd.DataFrame(rows))["judged"])

    text = judged(
        {(256, 0): 99.0, (512, 0): 100.0, (256, 64): 80.0, (512, 64): 50.0, (128, 64): 100.0}
    )
    assert "the best or within 2 % of it in 1 of 2 cases" in text
    assert "at worst 20 % slower; another width is at worst 50 % slower" in text
    assert "or others to compare with, were not tried" in judged({(256, 0): 1.0})


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


def test_measured_widths_stand_on_the_page_as_the_simulated_do() -> None:
    place = {"kernel": "block_tiles", "height": 8192, "width": 8192, "num_partition": 8}
    measured = pd.DataFrame(
        [
            cell(gbs=width + pad, dtype=dtype, row_bytes=width, pad_bytes=pad, **place)
            for dtype, width, pad in product(("float", "double"), (128, 256), (0, 64))
        ]
    )
    told = measured_widths(measured, Namer(measured))
    assert told is not None
    assert [r["level"] for r in told["rows"]] == ["D, measured: 8192²"] * 2
    assert told["rows"][0]["gbs"] == ["128.0 (128.0–192.0)", "256.0 (256.0–320.0)"]
    assert measured_widths(measured.assign(status="timeout"), Namer(measured)) is None


def test_a_recorded_index_computation_stands_on_the_page(tmp_path: Path) -> None:
    def planned() -> Any:
        run = ChapterRun(Path("results/r"), 1, {}, Path("record"), tmp_path)
        return CHAPTER.plan({}, run).reads

    assert planned() == {}
    file = tmp_path / "record" / "benchmarks" / "index.json"
    file.parent.mkdir(parents=True)
    row = {"variant": "exact", "threads": 512, "warps": 16, "loop_cycles": 100.0}
    row |= {"bare_cycles": 20.0, "index_cycles": 80.0}
    index = {"device": {"name": "NVIDIA H200"}, "index": [row]}
    file.write_text(json.dumps(index), encoding="utf-8")
    assert planned() == {"index": ("record/benchmarks/index.json",)}
    facts = page(Measured(EMPTY, [], [], {"index": [file]}, CHAPTER_FOLDER, {}, {})).facts
    assert facts is not None
    [told] = facts["index"]
    assert (told["device"], told["published"]) == ("NVIDIA H200", "18.2")
    assert list(told["rows"][0].values()) == ["exact", "512", "100.0", "20.0", "80.0", "5.00"]
