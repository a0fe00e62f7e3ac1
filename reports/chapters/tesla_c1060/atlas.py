"""Renders the atlas: all figures of the first document, drawn from a simulated device."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import typst
from gpushmoo.core.paths import KERNELS, ROOT
from gpushmoo.storage.wholefile import read_json, write_atomic, write_json

from .figures import charts, charts_copied, memory
from .figures.drawing import LOOKS, Drawing, partition_colour
from .figures.memory import STAGE_COLOURS
from .memory import Stage, banks_of, burst_duration
from .simulation.machine import Machine, exact, load_machine
from .simulation.reference import CORRECTED_ASSUMPTIONS, FIRST_ASSUMPTIONS

HERE = Path(__file__).resolve().parent
KERNEL = KERNELS / "block_eq_partition" / "kernel.cu"
# The document's parts: title, number of the last figure.
PARTS = (
    ("Part I: Coalescing and partition camping", 5),
    ("Part II: The timing of the memory", 8),
    ("Part III: Tiles as wide as a partition", 36),
)
# Figure 11 of the document is not a drawing: its number, its picture's name, its title.
LISTING = (11, "blockEqPartition_p4.jpg", "Figure 11: the index computation, as a listing")
DOCUMENT, SIMULATORS = "document", "public simulators' data"


DRAWINGS: tuple[Drawing, ...] = tuple(
    sorted((*memory.DRAWINGS, *charts.DRAWINGS, *charts_copied.DRAWINGS), key=lambda d: d.number)
)


def draw_all(machine: Machine, folder: Path) -> list[Path]:
    """Draw them into `folder`, as figure-01.svg and so on; return the files in that order."""
    files = []
    for drawing in DRAWINGS:
        files.append(folder / f"figure-{drawing.number:02d}.svg")
        drawing.draw(machine, files[-1])
    return files


def make_atlas(asked: Mapping[str, Any], recorded: Sequence[Path], pdf: Path) -> None:
    """`build_atlas` for the device that is asked for; a recorded one is copied."""
    if recorded:
        shutil.copyfile(recorded[0], pdf)
    else:
        build_atlas(ROOT / asked["file"], pdf)


def build_atlas(device_file: Path, pdf: Path) -> None:
    """Draw all figures for the device of `device_file` and write them to `pdf` as one document.

    The same files in give the same bytes out: no date, no system fonts, figures without dates.
    """
    machine = load_machine(device_file)
    slips = json.loads((HERE / "published/slips.json").read_text("utf-8"))["slips"]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        files = draw_all(machine, root / "figures")
        notes = [read_json(file.with_suffix(".json")) for file in files]
        figures = [
            {
                "number": drawing.number,
                "picture": drawing.picture,
                "file": file.name,
                "title": note["title"],
                "caption": note["caption"],
            }
            for drawing, file, note in zip(DRAWINGS, files, notes, strict=True)
        ]
        facts = atlas_facts(machine, figures, slips)
        write_json(root / "atlas.json", facts)
        shutil.copy(HERE / "atlas.typ", root)
        write_atomic(pdf, typst.compile(str(root / "atlas.typ"), ignore_system_fonts=True))


def atlas_facts(
    machine: Machine, figures: Sequence[Mapping[str, Any]], slips: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """All that the template shows, as strings, and the numbers by which it finds figures."""
    shown = sorted([*figures, _listing()], key=lambda figure: int(figure["number"]))
    parts = []
    first = 0
    for title, last in PARTS:
        in_part = [figure for figure in shown if first < figure["number"] <= last]
        parts.append({"title": title, "figures": in_part})
        first = last
    return {
        "device": machine.name,
        "contents": [
            {
                "number": figure["number"],
                "picture": figure["picture"],
                "shows": figure["title"].split(": ", 1)[-1],
            }
            for figure in shown
        ],
        "parts": parts,
        "colours": _colours(machine),
        "timing": timing_rows(machine),
        "clocks": _clocks(machine),
        "slips": slips,
    }


def index_statements(source: str) -> str:
    """Return the two statements of variant "reciprocal" that find a tile's row and column.

    Raises ValueError if the kernel does not contain them.
    """
    match = re.search(
        r"\bcopy_reciprocal\([^{]*\{.*?\n(?P<lines>"
        r"[ \t]*const unsigned int tile_y =[^;]*__float2uint_rz[^;]*;\s*?\n"
        r"[ \t]*const unsigned int tile_x =[^;]*;)",
        source,
        re.DOTALL,
    )
    if match is None:
        raise ValueError(
            "copy_reciprocal no longer finds tile_y and tile_x in two statements, the first with "
            "__float2uint_rz; figure 11 of the atlas quotes them."
        )
    return textwrap.dedent(match["lines"])


def _listing() -> dict[str, Any]:
    """Figure 11: as text, in the words of the project's kernel."""
    number, picture, title = LISTING
    rounded, corrected = FIRST_ASSUMPTIONS.index_cycles, CORRECTED_ASSUMPTIONS.index_cycles
    caption = (
        f"The document shows the code of the index computation, for which it takes {rounded} core "
        f"cycles, from figure 29 on {corrected}. That picture is lost. This listing is ours, "
        f"written after the document's description and the kernel in its text: two statements of "
        f"the kernel block_eq_partition, variant reciprocal. A tile's number becomes its row and "
        f"column without a division: one_over_tiles_x is 1 over the tiles in a row, made a "
        f"millionth larger so that a product cut to an integer never falls short. What differs: "
        f"the document takes four statements, with a float variable for the product, to the same "
        f"row and column; its next three, a thread's x, y and index, are part of our copy. "
        f"They have 32 bits, there and here (64 only in arrays of over 2³¹ elements)."
    )
    return {
        "number": number,
        "picture": picture,
        "title": title,
        "caption": caption,
        "code": index_statements(KERNEL.read_text(encoding="utf-8")),
    }


def timing_rows(machine: Machine) -> list[dict[str, str]]:
    """Tables 2 and 3 of the document: the memory's timing, and where each number is from."""
    banks = banks_of(machine)
    # Name, symbol, cycles of the memory's clock, source.
    rows: list[tuple[str, str, Fraction | int, str]] = [
        (
            f"bus transfer of {machine.bus_bytes} bytes",
            "",
            machine.beat_cycles / machine.memory_cycle,
            DOCUMENT,
        ),
        ("row active", "tRAS", machine.t_ras_cycles, DOCUMENT),
        ("precharge", "tRP", machine.t_rp_cycles, DOCUMENT),
        (
            "complete read cycle, tRAS + tRP",
            "tRC",
            machine.t_ras_cycles + machine.t_rp_cycles,
            DOCUMENT,
        ),
        ("opening a row to its first command", "tRCD", banks.t_rcd_cycles, SIMULATORS),
        ("between openings in two banks", "tRRD", banks.t_rrd_cycles, SIMULATORS),
        ("read command to its data", "tCL", banks.t_cl_cycles, SIMULATORS),
        ("write command to its data", "tWL", banks.t_wl_cycles, SIMULATORS),
        ("last data written to closing of the row", "tWR", banks.t_wr_cycles, SIMULATORS),
        ("last data written to next read", "tCDLR", banks.t_cdlr_cycles, SIMULATORS),
        (
            f"burst of {banks.burst_bytes} bytes of a partition",
            "",
            burst_duration(machine),
            SIMULATORS,
        ),
    ]
    return [
        {
            "name": name,
            "symbol": symbol,
            "memory": _number(cycles),
            "core": _number(cycles * machine.memory_cycle),
            "source": source,
        }
        for name, symbol, cycles, source in rows
    ]


def _clocks(machine: Machine) -> str:
    """The clocks that the rows of timing are in."""
    return (
        f"A core cycle is one of {_number(exact(machine.core_clock_ghz))} GHz; a memory cycle one "
        f"of {_number(exact(machine.memory_clock_mhz))} MHz, {_number(machine.memory_cycle)} core "
        f"cycles, in which the bus makes "
        f"{_number(exact(machine.memory_data_rate_mhz) / exact(machine.memory_clock_mhz))} "
        f"transfers."
    )


def _colours(machine: Machine) -> list[dict[str, Any]]:
    """What the fills of the drawings mean, by kind of figure."""
    partitions = [(partition_colour(p), str(p)) for p in range(min(machine.partitions, 8))]
    memory = [(STAGE_COLOURS[stage][0], stage.value) for stage in Stage if stage in STAGE_COLOURS]
    charts = [(look.colour, look.label) for look in LOOKS.values()]
    groups = (("Partitions", partitions), ("Memory", memory), ("Gantt charts", charts))
    return [
        {"name": name, "fills": [{"colour": c, "label": label} for c, label in fills]}
        for name, fills in groups
    ]


def _number(value: Fraction | int) -> str:
    return f"{float(value):g}"
