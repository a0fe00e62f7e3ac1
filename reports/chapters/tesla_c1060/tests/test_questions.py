"""Simulated cells on the page: the open questions, the tables, other widths of tiles."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from cells import cell
from conftest import ROOT
from gpushmoo.chapters.contract import ChapterError, ChapterRun
from gpushmoo.core.space import Cell, Problem
from gpushmoo.devices.machine_code.cubins import compile_cubin
from gpushmoo.devices.machine_code.sass import _entries, listing
from gpushmoo.report.chapter_pages import Measured
from gpushmoo.report.tables import Namer
from gpushmoo.workloads.loader import load_kernel
from matplotlib.figure import Figure
from tesla_c1060.answers import (
    ALONE,
    BOARD,
    CHANGED,
    EVEN,
    HALF,
    NOT_SHOWN,
    Answer,
    answers,
    at_levels,
    named,
    second_blocks_slow_double,
    verdicts,
)
from tesla_c1060.chapter import CHAPTER, RECORD
from tesla_c1060.chapter import DEVICE as NAME
from tesla_c1060.figures.simulated import evenness, float3, questions, simulated
from tesla_c1060.pages import page
from tesla_c1060.predictions import measured_widths, simulated_widths, tables
from tesla_c1060.simulation.machine import Level, MachineError
from tesla_c1060.stages import BINS, make_table, variants
from test_figures import assert_readable
from test_machine import C1060, FILE

CHAPTER_FOLDER = ROOT / "reports/chapters/tesla_c1060"
EMPTY = pd.DataFrame(columns=["status", "kernel", "device_name", "cache_state", "timing_mode"])
PARAMS = {"n_sm": 30, "half_warp": 16, "memory_clock_mhz": 400, "board_clock_mhz": 800}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that is simulated of the C1060, its questions at three sizes as recorded."""
    path = tmp_path_factory.mktemp("simulated")
    for kind in ("questions", "profile"):
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
def sizes(folder: Path) -> dict[int, dict[str, Answer]]:
    return answers(pd.read_parquet(folder / "questions.parquet"))


@pytest.fixture(scope="module")
def found(sizes: dict[int, dict[str, Answer]]) -> dict[str, Answer]:
    return sizes[512]


Sizes = dict[int, dict[str, Answer]]


def test_double_falls_and_float_stays_where_an_sm_takes_one_block_at_a_time(sizes: Sizes) -> None:
    """At every size and level, whatever between 7.5 and 10 % is taken as a change."""
    alone = at_levels(sizes, BOARD, ALONE)
    assert [(a.side, a.level) for a in alone] == [
        (side, level.value) for side in (256, 512, 1024) for level in Level
    ]
    assert max(abs(a.float_change) for a in alone) < 0.075
    assert max(a.double_change for a in alone) < -CHANGED
    assert min(a.lonely_share for a in alone) > 0.15
    # Second blocks are to blame: with as many SMs as blocks nothing falls.
    assert min(a.double_change for a in at_levels(sizes, BOARD, EVEN)) > 0
    assert second_blocks_slow_double(sizes)


def test_no_other_machine_shows_it_at_every_size_and_level(sizes: Sizes) -> None:
    for clock, changed in ((BOARD, ""), (BOARD, EVEN), (HALF, ALONE)):
        assert not any(a.float_stays for a in at_levels(sizes, clock, changed))
    half = at_levels(sizes, HALF)
    assert not any(a.double_falls for a in half)
    assert max(abs(a.double_change) for a in half) < 0.02


@pytest.mark.parametrize(
    ("clock", "changed", "dtype", "share"),
    [
        (BOARD, ALONE, "double", 0.95),
        (BOARD, ALONE, "float", 0.85),
        (BOARD, ALONE, "float", 1.15),
        (BOARD, EVEN, "double", 0.85),
        (HALF, "", "double", 0.85),
        (BOARD, "", "float", 1.0),
        (HALF, ALONE, "float", 1.0),
    ],
)
def test_one_size_and_level_that_says_otherwise_takes_the_answer_away(
    sizes: Sizes, clock: str, changed: str, dtype: str, share: float
) -> None:
    """Thresholds are the same upwards and downwards: `share` of 16 blocks is what 32 get."""
    name = named(clock, Level.BANKS, changed)
    a = sizes[512][name]
    other = replace(a, gbs={**a.gbs, (dtype, 32): share * a.gbs[dtype, 16]})
    told = sizes | {512: sizes[512] | {name: other}}
    assert not second_blocks_slow_double(told)
    assert verdicts(told, 30, 16)[0]["answer"] == NOT_SHOWN


def test_banks_in_order_contradict_the_document(found: dict[str, Answer]) -> None:
    ordered = found["half clock: banks, in order"]
    assert ordered.double_falls
    assert not ordered.thirty_best
    # Each of the mechanisms alone holds it down; without either it is nearly the partitions' rate.
    neither = found["half clock: in order, neither"]
    assert neither.gbs["double", 32] > 1.2 * ordered.gbs["double", 32]


def test_float3_is_slow_by_its_commands_and_not_by_camping(
    sizes: Sizes, found: dict[str, Answer]
) -> None:
    for answer in (a for by in sizes.values() for a in by.values()):
        assert answer.float3_over_float(1) > 0.9
        assert answer.float3_over_float(3) < 0.6
    bus = found["half clock: one bus"]
    assert bus.float3_over_float(3) == pytest.approx(1 / 3, rel=0.05)


def test_partitions_are_used_evenly_over_time(folder: Path) -> None:
    profile = pd.read_parquet(folder / "profile.parquet")
    assert len(profile) == 4 * BINS * 8
    for (dtype, commands), part in profile.groupby(["dtype", "commands"]):
        itemsize = {"float": 4, "double": 8, "float3": 12}[dtype]
        assert part["bursts"].sum() == 2 * 512 * 512 * itemsize * commands / 32
        assert evenness(part) > 0.8


def test_each_variant_changes_one_machine_which_must_have_what_is_asked(
    found: dict[str, Answer],
) -> None:
    machine = C1060
    with pytest.raises(MachineError, match="banks is missing"):
        variants(replace(machine, banks=None))
    with pytest.raises(MachineError, match="Tesla C1060 has no board_clock_mhz"):
        variants(replace(machine, board_clock_mhz=None))
    made = variants(machine)
    assert len({v.name for v in made}) == len(made) == len(found)
    assert sum(v.machine == machine for v in made) == 3  # one bus, partitions, choice of 32


def test_tables_follow_the_doubling_law_at_both_clocks(folder: Path) -> None:
    cells = pd.read_parquet(folder / "tables.parquet")
    shared = cells[cells["kernel"] == "block_eq_partition"]
    keys = ["variant", "level", "dtype", "width", "num_partition"]
    gbs = shared.set_index(keys)["bandwidth_gbs"]
    for clock, level, size, n in product(
        ("400 MHz", "800 MHz"), ("bus", "banks"), (256, 512), (1, 2)
    ):
        ratio = gbs[clock, level, "double", size, n] / gbs[clock, level, "float", size, n]
        assert ratio == pytest.approx(2, rel=0.06)
        double, single = (gbs[clock, level, "float", size, n] for n in (2, 1))
        assert double / single == pytest.approx(2, rel=0.02)
    most = shared.groupby("variant")["bandwidth_gbs"].max()
    # What each clock's bus carries at most; the tables need the faster one for what it shows.
    assert most["400 MHz"] < 51.2 < most["800 MHz"] < 102.4
    eight = {
        c: gbs[c, "bus", "double", 512, 8] / gbs[c, "bus", "float", 512, 8] for c in most.index
    }
    assert {c: round(ratio, 2) for c, ratio in eight.items()} == {"400 MHz": 1.86, "800 MHz": 1.99}


# Devices of the same keys that show other things: all SMs get one block, partitions are not camped
# on. What rests on neither stays.
OTHERS = {
    "n_sm": (32, {"Why does double", "Do the banks", "Does partition camping"}),
    "hashed_partitions": (True, {"Do the banks", "Does partition camping"}),
}


@pytest.mark.parametrize("key", OTHERS)
def test_another_device_does_not_get_the_story_of_the_c1060(
    key: str, sizes: Sizes, tmp_path: Path
) -> None:
    value, concerned = OTHERS[key]
    device, cells = tmp_path / "other.yaml", tmp_path / "questions.parquet"
    described = yaml.safe_load(FILE.read_text(encoding="utf-8")) | {key: value}
    device.write_text(yaml.safe_dump(described), encoding="utf-8")
    make_table({"kind": "questions", "file": device, "sides": [256]}, cells, 2)
    table = pd.read_parquet(cells)
    other = answers(table)
    told = {v["question"]: v["answer"] for v in verdicts(other, described["n_sm"], 16)}
    without = {question for question, text in told.items() if text == NOT_SHOWN}
    assert {q for q in told if q.startswith(tuple(concerned))} == without
    assert not any(v["answer"] == NOT_SHOWN for v in verdicts(sizes, 30, 16))
    questions(table, tmp_path / "q.svg")
    caption = json.loads((tmp_path / "q.json").read_text(encoding="utf-8"))["caption"]
    assert ("the SMs with two blocks work alone" in caption) == (key != "n_sm")


def test_float3_that_camps_is_not_explained_by_its_commands(found: dict[str, Answer]) -> None:
    slow = {
        name: replace(a, coalesced={**a.coalesced, ("float3", 1): 0.5 * a.coalesced["float", 1]})
        for name, a in found.items()
    }
    assert verdicts({256: slow}, 30, 16)[2]["answer"] == NOT_SHOWN


def test_a_law_of_the_tables_is_told_as_far_as_it_holds(folder: Path) -> None:
    cells = pd.read_parquet(folder / "tables.parquet")
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
    folder: Path, found: dict[str, Answer], drawn: list[Figure], tmp_path: Path
) -> None:
    cells = pd.read_parquet(folder / "questions.parquet")
    questions(cells, tmp_path / "questions.svg")
    float3(cells, pd.read_parquet(folder / "profile.parquet"), tmp_path / "float3.svg")
    simulated(pd.read_parquet(folder / "blocks.parquet"), tmp_path / "simulated.svg")
    assert len(drawn) == 3
    for figure in drawn:
        assert_readable(figure)
    text = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.json")}
    alone = found[named(BOARD, Level.BUS, ALONE)]
    fall = f"double falls from 16 to 32 blocks by {-100 * alone.double_change:.0f} %"
    assert fall in text["questions"]
    assert "choice of 32, one block an SM. Nothing here was measured." in text["questions"]
    shown = found["half clock: banks, choice of 32"]
    assert f"float3, 3 commands: {shown.coalesced['float3', 3]:.1f} GB/s" in text["float3"]
    assert "Tiles on the busiest SM: 8 of 16, 5 of 30, 8 of 32." in text["simulated"]


def test_pages_tell_what_was_simulated(folder: Path, sizes: Sizes) -> None:
    reads = {kind: [folder / f"{kind}.parquet"] for kind in ("tables", "questions")}
    facts = page(Measured(EMPTY, [], [], reads, CHAPTER_FOLDER, PARAMS, {})).facts
    assert facts is not None
    [table], [asked] = facts["tables"], facts["questions"]
    assert table["blocks"] == ["1", "2", "8", "30"]
    assert [(r["level"], r["size"], r["dtype"]) for r in table["shared"]][1:3] == [
        ("one bus, 400 MHz", "256²", "double"),
        ("one bus, 400 MHz", "512²", "float"),
    ]
    assert len(table["coalesced"]) == 8
    shown = {r["variant"]: r["facts"] == ["yes", "yes", "yes"] for r in asked["rows"]}
    assert shown == {name: answer.shows_all for name, answer in sizes[512].items()}
    places = [(r["size"], r["level"]) for r in asked["changes"]]
    assert places[2:4] == [("256²", "banks"), ("512²", "one bus")]
    # 30 blocks of double get 1 % less than 16 in one of the nine.
    assert [r["facts"] for r in asked["changes"]].count("no") == 1
    assert len(asked["verdicts"]) == 4


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


# The index computation


def test_only_the_index_is_between_the_clocks() -> None:
    source = (ROOT / "experiments/gpu/index_computation.cu").read_text(encoding="utf-8")
    code = listing(compile_cubin(source, "index", ("-std=c++17",), "sm_90").code)
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
    facts = page(Measured(EMPTY, [], [], {"index": [file]}, CHAPTER_FOLDER, {}, {})).facts
    assert facts is not None
    [told] = facts["index"]
    assert (told["device"], told["published"]) == ("NVIDIA H200", "18.2")
    assert list(told["rows"][0].values()) == ["exact", "512", "100.0", "20.0", "80.0", "5.00"]


def test_tiles_that_the_device_cannot_have_are_refused() -> None:
    run = ChapterRun(Path("results/r"), 1, {}, None, ROOT)
    simulate = {NAME: {"levels": ["bus"]}}
    for changed, words in (
        ({"row_bytes": [64]}, "half-warps of 16 threads do not fit tiles 8 elements wide"),
        ({"row_bytes": [8192]}, "has rows of 8192 bytes"),
        ({"size": 100}, "do not divide an array 100"),
    ):
        with pytest.raises(ChapterError, match=words):
            CHAPTER.plan({"simulate": simulate, "tiles": ASKED | changed}, run)
