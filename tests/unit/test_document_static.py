"""The document's static figures: readable, and their captions state what was computed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from gpushmoo.figures.document import coalescing, dram_cycles, maps
from gpushmoo.figures.document.drawing import PARTITION_COLOURS, Drawing, partition_colour
from gpushmoo.model.machine import Machine, MachineError, load_machine
from matplotlib.figure import Figure
from test_figures import assert_readable

C1060 = load_machine(Path(__file__).parents[2] / "config" / "devices" / "tesla-c1060.yaml")
assert C1060.banks is not None
# Another one in everything that these figures show.
MADE_UP = replace(
    C1060,
    n_sm=24,
    core_clock_ghz=1.2,
    partitions=7,
    bus_bytes=56,
    t_ras_cycles=25,
    t_rp_cycles=11,
    banks=replace(C1060.banks, t_rcd_cycles=9, t_rrd_cycles=6, t_cl_cycles=8),
)
MODULES = (coalescing, maps, dram_cycles)
DRAWINGS: Sequence[Drawing] = [d for module in MODULES for d in module.DRAWINGS]
EXPECTED = {
    1: [
        "1 transaction (64 bytes)",
        "1 transaction (128 bytes)",
        "(128 + 64 bytes)",
        "3 loads",
        "6 transactions move 576 bytes, 3 times the useful 192",
    ],
    2: ["the 64 tiles", "256 threads (32 × 8, 16 half-warps) copies 4, 8 rows apart"],
    3: ["256 bytes", "lies in 1 of 8 partitions", "lie in 8 partitions"],
    4: ["128 bytes", "begins in partition 4", "lies in 2 of 8", "lie in 4 partitions"],
    5: ["378 for the 384 bytes", "lies in 4 of 8", "within a row they lie in 3"],
    6: ["8 memory cycles after", "each takes 24", "4 reads end after 48 cycles instead of 96"],
    7: ["21 + 13 = 34 memory cycles = 110.5 core", "22 memory cycles = 71.5 core", "18% of"],
    8: ["4 bursts of 32 bytes", "every 2 memory", "after 18 memory cycles instead of 48"],
    9: [
        "1 block needs 128 steps, each of which uses 1 of 8",
        "64 steps, each of which uses 2 of 8",
    ],
    10: ["32 steps, each of which uses 4 of 8", "16 steps, each of which uses 8 of 8"],
    27: ["8 × 16 = 128 tiles", "256 bytes wide, in 1 of 8"],
    28: [
        "32 blocks 8 tiles on SM0 and SM1",
        "30 blocks 5 tiles on SM0 to SM7",
        "16 blocks it is 8",
    ],
}
EXPECTED_MADE_UP = {
    3: ["begins in partition 1", "lies in 7 of 7 partitions"],
    6: ["6 memory cycles after", "each takes 19", "after 37 cycles instead of 76"],
    7: ["25 + 11 = 36 memory cycles = 108 core", "17 memory cycles = 51 core"],
    8: ["after 16 memory cycles instead of 40"],
    10: ["16 steps, each of which uses 7 of 7"],
    28: ["32 blocks 8 tiles on SM0 to SM7"],
}


def by_number(drawing: Drawing) -> str:
    return f"figure {drawing.number}"


def expect(
    drawing: Drawing, machine: Machine, svg: Path, drawn: list[Figure], told: dict[int, list[str]]
) -> None:
    drawing.draw(machine, svg)
    (figure,) = drawn
    assert_readable(figure)
    width, height = figure.get_size_inches()
    assert width == pytest.approx(6.7)
    assert 1.5 <= height <= 3.5
    note = json.loads(svg.with_suffix(".json").read_text())
    assert note["title"].startswith(f"Figure {drawing.number}: ")
    for words in told.get(drawing.number, []):
        assert words in note["caption"]


@pytest.mark.parametrize("drawing", DRAWINGS, ids=by_number)
def test_drawings_are_readable_and_say_what_was_computed(
    drawing: Drawing, written: list[Figure], tmp_path: Path
) -> None:
    expect(drawing, C1060, tmp_path / "a.svg", written, EXPECTED)
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize("drawing", DRAWINGS, ids=by_number)
def test_drawings_of_another_machine_say_what_was_computed_of_it(
    drawing: Drawing, drawn: list[Figure], tmp_path: Path
) -> None:
    expect(drawing, MADE_UP, tmp_path / "a.svg", drawn, EXPECTED_MADE_UP)


def test_all_static_figures_are_there_once() -> None:
    assert sorted(d.number for d in DRAWINGS) == sorted(EXPECTED)
    assert len({d.picture for d in DRAWINGS}) == len(DRAWINGS)
    assert all(d.picture.endswith(".jpg") for d in DRAWINGS)


def test_a_figure_has_the_same_bytes_again(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        maps.tile_ids(C1060, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("drawing", dram_cycles.DRAWINGS, ids=by_number)
def test_timing_that_the_device_file_lacks_is_not_drawn(drawing: Drawing, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="banks is missing"):
        drawing.draw(replace(C1060, banks=None), tmp_path / "a.svg")


def test_partitions_have_colours_of_their_own() -> None:
    assert len(set(map(partition_colour, range(8)))) == len(PARTITION_COLOURS) == 8
    assert partition_colour(8) == partition_colour(0)
