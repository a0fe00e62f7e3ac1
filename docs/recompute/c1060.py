"""The simulated Tesla C1060: the open questions variant by variant, and the document's slips."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpushmoo.core.schema import PROFILE_SCHEMA, SIMULATION_SCHEMA
from gpushmoo.simulation.machine import Machine, load_machine
from gpushmoo.simulation.reference import Chart, TileCopy, simulate
from gpushmoo.storage.store import read_table
from tesla_c1060.answers import Answer, answers
from tesla_c1060.checks import FLOAT, published_checks, simulate_saturated
from tesla_c1060.figures.float3 import evenness
from tesla_c1060.questions import answer_questions
from tesla_c1060.saturation import Multiplier, SaturatedCopy, start_up_cycles, streaming_cycles

from .record import ROOT
from .slow import Slow, key_of
from .words import Claims, whole, whole_percent

DEVICE = ROOT / "config" / "devices" / "tesla-c1060.yaml"
SIDE = 512
MODULES = (
    "gpushmoo.simulation.machine",
    "gpushmoo.simulation.tiling",
    "gpushmoo.simulation.event_loop",
    "gpushmoo.simulation.dram_controller",
    "gpushmoo.simulation.run",
    "gpushmoo.simulation.cases",
    "tesla_c1060.questions",
    "tesla_c1060.answers",
)
# Variant, and its words in the table.
SHOWN = (
    ("half clock: one bus", "document's halved memory clock, one bus"),
    ("half clock: partitions", "the same, partitions with queues"),
    ("half clock: banks, in order", "the same, banks in order"),
    ("half clock: banks, choice of 32", "the same, banks, choice of 32 requests"),
    ("board's clock: one bus", "**board's memory clock (800 MHz), one bus**"),
    ("board's clock: partitions", "the same, partitions with queues"),
    ("board's clock: one bus, 32 SMs", "one bus, 32 SMs"),
    (
        "board's clock: one bus, one block an SM",
        "**one bus, an SM takes its second block after its first**",
    ),
)
BANKS = "half clock: banks, choice of 32"
BUS, QUEUES = "board's clock: one bus", "board's clock: partitions"
HASHED, ONE_BLOCK = "board's clock: partitions, hashed", "board's clock: one bus, one block an SM"


def values(slow: Slow, claims: Claims) -> dict[str, Any]:
    """Table and sentences of the simulated Tesla C1060; nothing of it was measured."""
    machine = load_machine(DEVICE)
    kept = slow.get("questions C1060", key_of([DEVICE], MODULES), _questions)
    found = kept["variants"]
    claims.hold(
        "All three facts come out only where an SM holds one block at a time.",
        [n for n, v in found.items() if v["shows_all"]] == [ONE_BLOCK],
        [n for n, v in found.items() if v["shows_all"]],
    )
    falls = {n: 100 * found[n]["double_change"] for n in (BUS, QUEUES, HASHED)}
    claims.hold(
        "Queues deepen the fall of double; hashed addresses undo that.",
        falls[QUEUES] < falls[HASHED] and falls[QUEUES] < falls[BUS],
        falls,
    )
    checks = published_checks(machine)
    plain = [c for c in checks if not c.corrects]
    claims.hold(
        "Every number of the text comes out as published.",
        all(c.agrees for c in plain),
        [c.quantity for c in plain if not c.agrees],
    )
    return {
        "numbers": str(len(plain)),
        "corrections": str(len(checks) - len(plain)),
        "rows": [
            [words, _three(found[n], "float"), _three(found[n], "double"), _facts(found[n])]
            for n, words in SHOWN
        ],
        "fall_bus": _signed(falls[BUS]),
        "fall_queues": _signed(falls[QUEUES]),
        "fall_hashed": _signed(falls[HASHED]),
        "lonely": whole_percent(found[BUS]["lonely"]),
        "lonely_one_block": whole_percent(found[ONE_BLOCK]["lonely"]),
        "float3_one": f"{found[BANKS]['float3 1']:.1f}",
        "float_one": f"{found[BANKS]['float 1']:.1f}",
        "float3_three": f"{found[BANKS]['float3 3']:.0f}",
        "even": whole_percent(kept["even"]),
        "hits": whole_percent(kept["hits"]),
        **_slips(machine),
    }


def _signed(value: float) -> str:
    return f"−{abs(value):.1f} %" if value < 0 else f"+{value:.1f} %"


def _three(v: dict[str, Any], dtype: str) -> str:
    return " / ".join(f"{v[f'{dtype} at {n}']:.1f}" for n in (16, 30, 32))


def _facts(v: dict[str, Any]) -> str:
    """Which of the document's three facts a variant shows."""
    if v["shows_all"]:
        return "**yes**"
    names = {"float_stays": "float stays", "double_falls": "double falls", "thirty_best": "30 best"}
    shown = [words for name, words in names.items() if v[name]]
    return f"only: {', '.join(shown)}" if shown else "none"


def _questions() -> dict[str, Any]:
    """Simulate every variant, and what the plain numbers of its answer are."""
    with TemporaryDirectory() as scratch:
        written, over_time = Path(scratch) / "cells.parquet", Path(scratch) / "profile.parquet"
        answer_questions(DEVICE, SIDE, written, over_time, 1)
        cells = read_table(written, SIMULATION_SCHEMA).to_pandas()
        profile = read_table(over_time, PROFILE_SCHEMA).to_pandas()
    copies = cells[
        (cells["variant"] == BANKS)
        & (cells["dtype"] == "float3")
        & (cells["commands"] == 1)
        & (cells["kernel"] == "copy2d_coalesced")
    ]
    one = profile[(profile["dtype"] == "float3") & (profile["commands"] == 1)]
    return {
        "variants": {a.variant: _plain(a) for a in answers(cells)},
        "even": evenness(one),
        "hits": float(copies["row_hit_share"].iloc[0]),
    }


def _plain(a: Answer) -> dict[str, Any]:
    return {
        **{f"{dtype} at {n}": value for (dtype, n), value in a.gbs.items()},
        **{f"{dtype} {commands}": value for (dtype, commands), value in a.coalesced.items()},
        "double_change": a.double_change,
        "lonely": a.lonely_share,
        "float_stays": a.float_stays,
        "double_falls": a.double_falls,
        "thirty_best": a.thirty_best,
        "shows_all": a.shows_all,
    }


def _slips(machine: Machine) -> dict[str, str]:
    """What drawing the document's figures brought to light, in core cycles."""
    copy = SaturatedCopy()
    load = TileCopy.square(machine, 256, FLOAT)
    one, eight = (simulate(machine, load, n, chart=Chart()).bandwidth_gbs for n in (1, 8))
    run = simulate_saturated(machine, copy, FLOAT)
    formula = start_up_cycles(machine, copy) + streaming_cycles(
        machine, copy, FLOAT, Multiplier.CORRECTED
    )
    return {
        "eight_blocks": f"{eight / one:.2f}",
        "start": str(start_up_cycles(machine, copy)),
        "start_simulated": str(machine.index_cycles + machine.latency_cycles),
        "saturated_off": f"{abs(float(run.drained_cycles - formula)):.0f}",
        "saturated_cycles": whole(float(run.drained_cycles)),
        "tiles_of_formula": str(copy.tiles_per_block * machine.n_sm),
    }
