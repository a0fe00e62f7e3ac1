"""The open questions: what the variants answer, and what of it is a property of the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from gpushmoo.analysis.questions import Answer, answers
from gpushmoo.figures import float3 as float3_module
from gpushmoo.figures import questions as questions_module
from gpushmoo.figures import simulated as simulated_module
from gpushmoo.figures.float3 import evenness
from gpushmoo.model.machine import MachineError, load_machine
from gpushmoo.model.questions import BINS, answer_questions, variants
from gpushmoo.model.simulate import simulate_device, simulate_tables
from gpushmoo.report.simulated import simulated_pages
from gpushmoo.schema import PROFILE_SCHEMA, SIMULATION_SCHEMA
from matplotlib.figure import Figure
from test_figures import assert_readable

DEVICE = ROOT / "config" / "devices" / "tesla-c1060.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that is simulated of the C1060, at the smallest of the document's sizes."""
    path = tmp_path_factory.mktemp("simulated")
    answer_questions(DEVICE, 256, path / "questions.parquet", path / "profile.parquet", 2)
    simulate_tables(DEVICE, ["bus", "banks"], [256, 512], [1, 2, 8, 30], path / "tables.parquet", 2)
    simulate_device(DEVICE, ["bus", "partitions"], [256], [16, 30, 32], path / "blocks.parquet", 2)
    return path


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Answer]:
    return {a.variant: a for a in answers(pd.read_parquet(folder / "questions.parquet"))}


def test_the_files_keep_their_schemas(folder: Path) -> None:
    for name in ("questions", "tables", "blocks"):
        schema = pq.read_schema(folder / f"{name}.parquet").remove_metadata()
        assert schema.equals(SIMULATION_SCHEMA)
    assert pq.read_schema(folder / "profile.parquet").remove_metadata().equals(PROFILE_SCHEMA)


def test_double_falls_because_two_sms_have_two_blocks(found: dict[str, Answer]) -> None:
    """At the board's clock, on the document's own single bus; without the two SMs it does not."""
    assert found["board's clock: one bus"].double_falls
    assert found["board's clock: partitions"].double_falls
    assert not found["board's clock: one bus, 32 SMs"].double_falls
    assert not found["half clock: one bus"].double_falls


def test_blocks_one_after_the_other_show_all_that_was_measured(found: dict[str, Answer]) -> None:
    alone = found["board's clock: one bus, one block an SM"]
    assert alone.shows_all
    assert alone.lonely_share > 0.3
    # The critical path is 8 tiles with 16 blocks and with 32: float, which the bus does not hold
    # up, takes the same time.
    assert abs(alone.float_change) < 0.04


def test_banks_in_order_contradict_the_document(found: dict[str, Answer]) -> None:
    ordered = found["half clock: banks, in order"]
    assert ordered.double_falls
    assert not ordered.thirty_best
    # Each of the mechanisms alone holds it down; without either it is nearly the partitions' rate.
    neither = found["half clock: in order, neither"]
    assert neither.gbs["double", 32] > 1.2 * ordered.gbs["double", 32]


def test_float3_is_slow_by_its_commands_and_not_by_camping(found: dict[str, Answer]) -> None:
    for answer in found.values():
        assert answer.float3_over_float(1) > 0.9
        assert answer.float3_over_float(3) < 0.6
    bus = found["half clock: one bus"]
    assert bus.float3_over_float(3) == pytest.approx(1 / 3, rel=0.05)


def test_partitions_are_used_evenly_over_time(folder: Path) -> None:
    profile = pd.read_parquet(folder / "profile.parquet")
    assert len(profile) == 4 * BINS * 8
    for (dtype, commands), part in profile.groupby(["dtype", "commands"]):
        itemsize = {"float": 4, "double": 8, "float3": 12}[dtype]
        assert part["bursts"].sum() == 2 * 256 * 256 * itemsize * commands / 32
        assert evenness(part) > 0.8


def test_evenness_of_one_partition_is_its_share() -> None:
    one = pd.DataFrame(
        {"partition": range(8), "from_cycle": 0.0, "bursts": [8, 0, 0, 0, 0, 0, 0, 0]}
    )
    assert evenness(one) == 1 / 8
    assert evenness(one.assign(bursts=3)) == 1


def test_a_machine_that_lacks_what_is_asked_is_refused() -> None:
    machine = load_machine(DEVICE)
    with pytest.raises(MachineError, match="Tesla C1060 has no banks"):
        variants(replace(machine, banks=None))
    with pytest.raises(MachineError, match="Tesla C1060 has no board_clock_mhz"):
        variants(replace(machine, board_clock_mhz=None))


def test_each_variant_changes_one_machine(found: dict[str, Answer]) -> None:
    machine = load_machine(DEVICE)
    named = variants(machine)
    assert len({v.name for v in named}) == len(named) == len(found)
    assert sum(v.machine == machine for v in named) == 3  # one bus, partitions, choice of 32


def test_tables_follow_the_doubling_law(folder: Path) -> None:
    cells = pd.read_parquet(folder / "tables.parquet")
    shared = cells[cells["kernel"] == "block_eq_partition"]
    gbs = shared.set_index(["level", "dtype", "width", "num_partition"])["bandwidth_gbs"]
    for level in ("bus", "banks"):
        for size in (256, 512):
            for n in (1, 2):
                ratio = gbs[level, "double", size, n] / gbs[level, "float", size, n]
                assert ratio == pytest.approx(2, rel=0.06)
            double, single = (gbs[level, "float", size, n] for n in (2, 1))
            assert double / single == pytest.approx(2, rel=0.02)
    assert shared["bandwidth_gbs"].max() < 51.2


@pytest.mark.parametrize("name", ["questions", "float3", "simulated"])
def test_figures_are_readable(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {
        "questions": questions_module,
        "float3": float3_module,
        "simulated": simulated_module,
    }
    drawn: list[Figure] = []
    save = modules[name].save

    def keep(figure: Figure, *args: Any, **facts: Any) -> None:
        drawn.append(figure)
        save(figure, *args, **facts)

    monkeypatch.setattr(modules[name], "save", keep)
    draw_from(folder, name, tmp_path / f"{name}.svg")
    assert_readable(drawn[0])


def draw_from(folder: Path, name: str, svg: Path) -> str:
    """Draw a figure of what the fixture simulated; its note as text."""
    cells = pd.read_parquet(folder / "questions.parquet")
    if name == "questions":
        questions_module.questions(cells, svg)
    elif name == "float3":
        float3_module.float3(cells, pd.read_parquet(folder / "profile.parquet"), svg)
    else:
        simulated_module.simulated(pd.read_parquet(folder / "blocks.parquet"), svg)
    return svg.with_suffix(".json").read_text(encoding="utf-8")


def test_captions_hold_the_numbers(folder: Path, found: dict[str, Answer], tmp_path: Path) -> None:
    text = draw_from(folder, "questions", tmp_path / "questions.svg")
    board = found["board's clock: one bus"]
    assert f"double falls by {-100 * board.double_change:.0f} %" in text
    assert "one block an SM. Nothing here was measured." in text
    text = draw_from(folder, "float3", tmp_path / "float3.svg")
    shown = found["half clock: banks, choice of 32"]
    assert f"float3, 3 commands: {shown.coalesced['float3', 3]:.1f} GB/s" in text
    text = draw_from(folder, "simulated", tmp_path / "simulated.svg")
    assert "Tiles on the busiest SM: 8 of 16, 5 of 30, 8 of 32." in text


def test_pages_tell_what_was_simulated(folder: Path, found: dict[str, Answer]) -> None:
    pages = simulated_pages(
        [pd.read_parquet(folder / "tables.parquet")],
        [pd.read_parquet(folder / "questions.parquet")],
        [],
    )
    [table] = pages["tables"]
    assert table["blocks"] == ["1", "2", "8", "30"]
    assert [(r["level"], r["size"], r["dtype"]) for r in table["shared"]][:4] == [
        ("one bus", "256²", "float"),
        ("one bus", "256²", "double"),
        ("one bus", "512²", "float"),
        ("one bus", "512²", "double"),
    ]
    assert len(table["coalesced"]) == 4
    [page] = pages["questions"]
    assert [r["variant"] for r in page["rows"]] == list(found)
    assert [r["facts"] for r in page["rows"]].count(["yes", "yes", "yes"]) == sum(
        a.shows_all for a in found.values()
    )
    assert len(page["verdicts"]) == 4
    assert pages["same_machine"] == []
