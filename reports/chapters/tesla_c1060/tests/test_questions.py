"""The open questions: what the variants answer, and what of it is a property of the machine."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from conftest import ROOT
from gpushmoo.report.chapter_pages import Measured
from matplotlib.figure import Figure
from tesla_c1060.answers import (
    ALONE,
    BOARD,
    CHANGED,
    EVEN,
    HALF,
    Answer,
    answers,
    at_levels,
    named,
    second_blocks_slow_double,
    signed,
    verdicts,
)
from tesla_c1060.chapter import RECORD
from tesla_c1060.figures.simulated import evenness, float3, questions, simulated
from tesla_c1060.pages import page
from tesla_c1060.predictions import tables
from tesla_c1060.simulation.machine import Level, MachineError, load_machine
from tesla_c1060.simulation.run import PROFILE_SCHEMA, SIMULATION_SCHEMA
from tesla_c1060.stages import BINS, make_table, variants
from test_figures import assert_readable

DEVICE = ROOT / "reports/chapters/tesla_c1060/devices" / "tesla-c1060.yaml"
PARAMS = {"n_sm": 30, "half_warp": 16, "memory_clock_mhz": 400, "board_clock_mhz": 800}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that is simulated of the C1060, its questions at three sizes as recorded."""
    path = tmp_path_factory.mktemp("simulated")
    for kind in ("questions", "profile"):
        (file,) = RECORD.glob(f"{DEVICE.stem}-{kind}-*")
        shutil.copy(file, path / f"{kind}.parquet")
    for kind, levels, sizes, blocks in (
        ("tables", ["bus", "banks"], [256, 512], [1, 2, 8, 30]),
        ("blocks", ["bus", "partitions"], [256], [16, 30, 32]),
    ):
        asked = {"kind": kind, "file": DEVICE, "levels": levels, "sizes": sizes}
        make_table(asked | {"num_partition": blocks}, path / f"{kind}.parquet", 2)
    return path


@pytest.fixture(scope="module")
def sizes(folder: Path) -> dict[int, dict[str, Answer]]:
    return answers(pd.read_parquet(folder / "questions.parquet"))


@pytest.fixture(scope="module")
def found(sizes: dict[int, dict[str, Answer]]) -> dict[str, Answer]:
    return sizes[512]


def test_the_files_keep_their_schemas(folder: Path) -> None:
    for name in ("questions", "tables", "blocks"):
        schema = pq.read_schema(folder / f"{name}.parquet").remove_metadata()
        assert schema.equals(SIMULATION_SCHEMA)
    assert pq.read_schema(folder / "profile.parquet").remove_metadata().equals(PROFILE_SCHEMA)


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
    assert verdicts(told, 30, 16)[0]["answer"].startswith("This simulated device")


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


def test_evenness_of_one_partition_is_its_share() -> None:
    one = pd.DataFrame(
        {"partition": range(8), "from_cycle": 0.0, "bursts": [8, 0, 0, 0, 0, 0, 0, 0]}
    )
    assert evenness(one) == 1 / 8
    assert evenness(one.assign(bursts=3)) == 1


def test_each_variant_changes_one_machine_which_must_have_what_is_asked(
    found: dict[str, Answer],
) -> None:
    machine = load_machine(DEVICE)
    with pytest.raises(MachineError, match="Tesla C1060 has no banks"):
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
def test_another_device_gets_its_own_numbers_and_not_the_story_of_the_c1060(
    key: str, sizes: Sizes, tmp_path: Path
) -> None:
    value, concerned = OTHERS[key]
    device, cells = tmp_path / "other.yaml", tmp_path / "questions.parquet"
    described = yaml.safe_load(DEVICE.read_text(encoding="utf-8")) | {key: value}
    device.write_text(yaml.safe_dump(described), encoding="utf-8")
    make_table({"kind": "questions", "file": device, "sides": [256]}, cells, 2)
    table = pd.read_parquet(cells)
    other = answers(table)
    told = {v["question"]: v["answer"] for v in verdicts(other, described["n_sm"], 16)}
    plain = {question for question, text in told.items() if "This simulated device" in text}
    assert {q for q in told if q.startswith(tuple(concerned))} == plain
    assert not any("This simulated device" in v["answer"] for v in verdicts(sizes, 30, 16))
    changes = [
        signed(other[256][named(BOARD, level, ALONE)].double_change)
        for level in (Level.BUS, Level.PARTITIONS)
    ]
    text = next(text for question, text in told.items() if question.startswith("Does partition"))
    assert [c for c in changes if c not in text] == []
    questions(table, tmp_path / "q.svg")
    caption = json.loads((tmp_path / "q.json").read_text(encoding="utf-8"))["caption"]
    assert ("the SMs with two blocks work alone" in caption) == (key != "n_sm")


def test_float3_that_camps_is_not_explained_by_its_commands(found: dict[str, Answer]) -> None:
    slow = {
        name: replace(a, coalesced={**a.coalesced, ("float3", 1): 0.5 * a.coalesced["float", 1]})
        for name, a in found.items()
    }
    text = verdicts({256: slow}, 30, 16)[2]["answer"]
    assert text.startswith("This simulated device does not tell. By one access of a half-warp")
    assert "0.50 to 0.50 times" in text


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


def test_pages_tell_what_was_simulated(folder: Path, found: dict[str, Answer]) -> None:
    reads = {kind: [folder / f"{kind}.parquet"] for kind in ("tables", "questions")}
    chapter = ROOT / "reports/chapters/tesla_c1060"
    empty = pd.DataFrame(columns=["status", "kernel", "device_name", "cache_state", "launch_kind"])
    facts = page(Measured(empty, [], [], reads, chapter, PARAMS, {})).facts
    assert facts is not None
    [table] = facts["tables"]
    assert table["blocks"] == ["1", "2", "8", "30"]
    assert [(r["level"], r["size"], r["dtype"]) for r in table["shared"]][:4] == [
        ("one bus, 400 MHz", "256²", "float"),
        ("one bus, 400 MHz", "256²", "double"),
        ("one bus, 400 MHz", "512²", "float"),
        ("one bus, 400 MHz", "512²", "double"),
    ]
    assert len(table["coalesced"]) == 8
    [asked] = facts["questions"]
    assert [r["variant"] for r in asked["rows"]] == list(found)
    assert [r["facts"] for r in asked["rows"]].count(["yes", "yes", "yes"]) == sum(
        a.shows_all for a in found.values()
    )
    assert [(r["size"], r["level"]) for r in asked["changes"]][2:4] == [
        ("256²", "banks"),
        ("512²", "one bus"),
    ]
    # 30 blocks of double get 1 % less than 16 in one of the nine.
    assert [r["facts"] for r in asked["changes"]].count("no") == 1
    assert len(asked["verdicts"]) == 4
