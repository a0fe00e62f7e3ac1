"""The document's Gantt charts: every drawing runs, is readable, and tells computed numbers."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpushmoo.figures.document.chart_bars import LOOKS
from gpushmoo.figures.document.charts import DRAWINGS
from gpushmoo.model.machine import Machine, load_machine
from matplotlib.figure import Figure
from matplotlib.text import Text

C1060 = load_machine(Path(__file__).parents[2] / "config" / "devices" / "tesla-c1060.yaml")
# Few SMs, bursts shorter than an index computation, memory faster than a turn.
SMALL = replace(
    C1060, name="Made-up 3", n_sm=3, core_clock_ghz=1.0, index_cycles=60, latency_cycles=150
)
# As many SMs as no block needs, half as many half-warps, a wide bus.
OTHER = replace(C1060, name="Made-up 1", n_sm=1, half_warp=32, bus_bytes=128, index_cycles=10)
NUMBERS = [*range(12, 27), *range(29, 37)]

# What the text of the document fixes; the captions have it from the simulation.
TOLD = {
    12: ["20 cycles", "waits 401"],
    13: ["in unit 22", "takes 32 units"],
    14: ["takes hw1", "1 half-warp waits"],
    15: ["takes hw22", "hw0, which stands behind hw31"],
    16: ["takes hw0", "hw1 to hw10"],
    17: ["128 tiles of 640 cycles", "82321 cycles", "4.14 GB/s"],
    18: ["8.28 against 4.14 GB/s"],
    19: ["from 420 to 421", "from 421 to 422"],
    20: ["64 tiles instead of 128", "640 cycles against 640", "1.99 times"],
    21: ["takes 2 cycles, shorter than the 20"],
    22: ["2 transfers takes 4 cycles", "4 transfers takes 4 cycles"],
    23: ["4 transfers takes 8 cycles", "8 transfers takes 8 cycles"],
    24: ["8 transfers takes 16 cycles, shorter than the 20", "15.45 times"],
    25: ["holds the SM for 1 cycle", "12 half-warps"],
    26: ["takes 55 units: 32", "4.84 GB/s"],
    29: ["36 cycles", "402", "404", "1.625"],
    30: ["after 14 units", "after 32"],
    31: ["takes 46 units: 32", "3.22 GB/s"],
    32: ["48.75 cycles", "longer than the 36", "without vacuum", "18 x 2 = 16"],
    33: ["write command after 1152", "98% of the time"],
    34: ["reads for 1560 cycles", "never rests"],
    35: ["X = (32 − 20) × 36 = 432", "= 49725", "54.3553 GB/s", "50.9855 GB/s", "slip"],
    36: ["= 99450", "54.5904 GB/s", "51.1923 GB/s", "1.00433 times", "slip"],
}


def assert_readable(figure: Figure) -> None:
    """No two texts overlap, none leaves the page, and the page is no larger than it may be."""
    width, height = figure.get_size_inches()
    assert width <= 6.7
    assert 1.3 <= height <= 3.6
    # A closed figure has forgotten the resolution at which it was laid out: an SVG's.
    figure.dpi = 72
    beyond = set()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [t for t in axis.get_major_ticks() if not low <= t.get_loc() <= high]
            beyond |= {label for t in ticks for label in (t.label1, t.label2)}
    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    # Without the margin of a text's own box: those may touch.
    boxes = [(t.get_text(), Text.get_window_extent(t)) for t in shown if t not in beyond]
    page = figure.bbox
    for text, box in boxes:
        assert page.x0 <= box.x0, f"{text!r} leaves the page"
        assert box.x1 <= page.x1, f"{text!r} leaves the page"
        assert page.y0 <= box.y0, f"{text!r} leaves the page"
        assert box.y1 <= page.y1, f"{text!r} leaves the page"
    for (one, a), (two, b) in itertools.combinations(boxes, 2):
        apart = a.x1 <= b.x0 or b.x1 <= a.x0 or a.y1 <= b.y0 or b.y1 <= a.y0
        assert apart, f"{one!r} overlaps {two!r}"


def draw(number: int, machine: Machine, svg: Path) -> dict[str, Any]:
    """Draw one figure; its note."""
    next(d for d in DRAWINGS if d.number == number).draw(machine, svg)
    note: dict[str, Any] = json.loads(svg.with_suffix(".json").read_text())
    return note


def test_every_chart_of_the_document_is_there_once() -> None:
    assert [drawing.number for drawing in DRAWINGS] == NUMBERS
    assert len({drawing.picture for drawing in DRAWINGS}) == len(DRAWINGS)
    assert {drawing.number: drawing.picture for drawing in DRAWINGS}[31] == (
        "blockEqPartition_p26.jpg"
    )


@pytest.mark.parametrize("number", NUMBERS)
def test_chart_of_the_c1060(number: int, written: list[Figure], tmp_path: Path) -> None:
    note = draw(number, C1060, tmp_path / "a.svg")
    assert ET.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert note["title"].startswith(f"Figure {number}: ")
    for words in TOLD[number]:
        assert words in note["caption"]
    assert_readable(written[0])
    # Hatches of dots, and bars that nobody sees, have made files of megabytes.
    assert (tmp_path / "a.svg").stat().st_size < 200_000


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("machine", [SMALL, OTHER], ids=lambda machine: machine.name)
def test_chart_of_another_machine(
    number: int, machine: Machine, drawn: list[Figure], tmp_path: Path
) -> None:
    note = draw(number, machine, tmp_path / "a.svg")
    assert note["caption"]
    assert_readable(drawn[0])


def test_captions_follow_the_machine(tmp_path: Path) -> None:
    assert "not longer than the 60" in draw(32, SMALL, tmp_path / "a.svg")["caption"]
    assert "16 half-warps" in draw(13, OTHER, tmp_path / "b.svg")["caption"]
    assert "48.75" not in draw(35, SMALL, tmp_path / "c.svg")["caption"]


def test_legends_name_what_is_shown(drawn: list[Figure], tmp_path: Path) -> None:
    draw(13, C1060, tmp_path / "a.svg")
    draw(26, C1060, tmp_path / "b.svg")
    named = [[t.get_text() for t in figure.legends[0].get_texts()] for figure in drawn]
    assert named == [
        ["index computation", "waiting for a read", "bus transfer of a read"],
        [look.label for look in LOOKS.values()],
    ]


def test_each_meaning_has_a_look_of_its_own_in_grey() -> None:
    """Height, hatch and edge tell bars apart where colours do not."""
    looks = {(look.height, look.hatch, look.edge) for look in LOOKS.values()}
    assert len(looks) == len({look.colour for look in LOOKS.values()}) == len(LOOKS)


def test_same_machine_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw(24, C1060, tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
