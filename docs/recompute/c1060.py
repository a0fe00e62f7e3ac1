"""The simulated Tesla C1060: the open questions variant by variant, and the document's slips."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from gpushmoo.core.schema import PROFILE_SCHEMA, SIMULATION_SCHEMA
from gpushmoo.planning.recorded import RECORD
from gpushmoo.simulation.machine import Level, Machine, load_machine
from gpushmoo.simulation.reference import Chart, TileCopy, simulate
from gpushmoo.storage.store import read_table
from gpushmoo.storage.wholefile import read_json
from tesla_c1060.answers import ALONE, BOARD, CHANGED, EVEN, HALF, Answer, answers, named
from tesla_c1060.checks import FLOAT, Check, simulate_saturated
from tesla_c1060.figures.float3 import evenness
from tesla_c1060.latency import MEASURED_GBS
from tesla_c1060.saturation import Multiplier, SaturatedCopy, start_up_cycles, streaming_cycles
from tesla_c1060.tiles import GOOD, RULE, judge

from .record import ROOT
from .words import Claims, whole, whole_percent, whole_percent_span

DEVICE = ROOT / "config" / "devices" / "tesla-c1060.yaml"
# Variant, and its words in the table.
SHOWN = (
    (named(HALF, Level.BUS), "document's halved memory clock, one bus"),
    (named(HALF, Level.PARTITIONS), "the same, partitions with queues"),
    ("half clock: banks, in order", "the same, banks in order"),
    (named(HALF, Level.BANKS), "the same, banks, choice of 32 requests"),
    (named(BOARD, Level.BUS), "board's memory clock (800 MHz), one bus"),
    (named(BOARD, Level.PARTITIONS), "the same, partitions with queues"),
    (named(BOARD, Level.BUS, EVEN), "one bus, 32 SMs"),
    *(
        (named(BOARD, level, ALONE), f"**{words}, an SM takes its second block after its first**")
        for level, words in zip(Level, ("one bus", "partitions", "banks"), strict=True)
    ),
)
BANKS, SPREAD = named(HALF, Level.BANKS), f"board's clock: partitions, hashed, {ALONE}"


def values(claims: Claims) -> dict[str, Any]:
    """Table and sentences of the simulated Tesla C1060; nothing of it was measured."""
    machine = load_machine(DEVICE)
    asked = _cells("questions")
    sizes = {side: {n: _plain(a) for n, a in by.items()} for side, by in answers(asked).items()}
    found = next(iter(sizes.values()))

    def every(clock: str, changed: str, key: str, levels: Iterable[Level] = Level) -> list[float]:
        """A number of one machine at all sizes and `levels`, in percent."""
        names = [named(clock, level, changed) for level in levels]
        return [100 * by[name][key] for by in sizes.values() for name in names]

    alone = [by[named(BOARD, level, ALONE)] for by in sizes.values() for level in Level]
    claims.hold(
        "With one block an SM at a time float stays and double falls at every size and level.",
        all(v["float_stays"] and v["double_falls"] for v in alone),
        alone,
    )
    claims.hold(
        "All three facts come out only with one block an SM at a time and the board's clock.",
        all(n.endswith(ALONE) and n.startswith(BOARD) for n, v in found.items() if v["shows_all"]),
        [n for n, v in found.items() if v["shows_all"]],
    )
    claims.hold(
        "With two blocks an SM at the board's clock float rises at every size and level.",
        all(v > 100 * CHANGED for v in every(BOARD, "", "float_change")),
    )
    claims.hold(
        "Double falls on one bus at least as far as with queues at the partitions.",
        max(every(BOARD, ALONE, "double_change", [Level.BUS]))
        <= min(every(BOARD, ALONE, "double_change", [Level.PARTITIONS])),
    )
    checks = recorded_checks()
    plain = [c for c in checks if not c.corrects and c.ours is not None]
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
        "measured": f"{MEASURED_GBS} GB/s",
        "changed": f"{100 * CHANGED:.0f} %",
        "alone_double": _span(every(BOARD, ALONE, "double_change")),
        "alone_float": _span(every(BOARD, ALONE, "float_change")),
        "together_double": _span(every(BOARD, "", "double_change")),
        "together_float": _span(every(BOARD, "", "float_change")),
        "even_double": _span(every(BOARD, EVEN, "double_change")),
        "half_float": _span(every(HALF, ALONE, "float_change")),
        "half_double": _span(every(HALF, "", "double_change")),
        "best": f"{sum(v['thirty_best'] for v in alone)} of {len(alone)}",
        "fall_bus": _span(every(BOARD, ALONE, "double_change", [Level.BUS])),
        "fall_queues": _span(every(BOARD, ALONE, "double_change", [Level.PARTITIONS])),
        "fall_hashed": _span(100 * by[SPREAD]["double_change"] for by in sizes.values()),
        "lonely": whole_percent_span(v["lonely"] for v in alone),
        "float3_one": f"{found[BANKS]['float3 1']:.1f}",
        "float_one": f"{found[BANKS]['float 1']:.1f}",
        "float3_three": f"{found[BANKS]['float3 3']:.0f}",
        **{name: whole_percent(share) for name, share in _float3(asked).items()},
        **_slips(machine),
        **_tiles(claims),
    }


def _tiles(claims: Claims) -> dict[str, str]:
    """The rule "tiles as wide as a partition", simulated as the default configuration says."""
    cells = _cells("tiles")
    queued = cells[(cells["level"] == "partitions") & (cells["num_partition"] == 8)]
    by_width = queued[queued["dtype"] == "float"].groupby("row_bytes")["bandwidth_gbs"]
    spread = by_width.max() / by_width.min() - 1
    claims.hold(
        "With queues and 8 blocks of float the rule's tile alone is as fast at every pitch.",
        spread[RULE] < 0.005 and spread.drop(RULE).min() > 0.03,
        spread.to_dict(),
    )
    found = judge(cells[cells["level"] == "banks"])
    assert found is not None
    claims.hold(
        "With banks the rule's width is mostly not as good as the best.",
        found.good < found.cases / 2,
        found,
    )
    return {
        "tiles_good": f"{100 * GOOD:.0f} %",
        "tiles_count": f"{found.good} of {found.cases}",
        "tiles_worst": whole_percent(found.worst),
        "tiles_other": whole_percent(found.other),
    }


def _span(changes: Iterable[float]) -> str:
    """``−28.4 to −10.5 %``; `changes` are in percent."""
    values = sorted(changes)
    return f"{_signed(values[0]).removesuffix(' %')} to {_signed(values[-1])}"


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


def recorded_checks() -> list[Check]:
    """The document's numbers beside ours, as recorded."""
    return [Check(**row) for row in read_json(_recorded("checks"))["checks"]]


def _recorded(kind: str) -> Path:
    """The file of this kind that the record has of the simulated device."""
    (file,) = RECORD.glob(f"{DEVICE.stem}-{kind}-*")
    return file


def _cells(kind: str, schema: pa.Schema = SIMULATION_SCHEMA) -> pd.DataFrame:
    return read_table(_recorded(kind), schema).to_pandas()


def _float3(cells: pd.DataFrame) -> dict[str, float]:
    """How even the partitions' work is in the copy by one access, and how often rows are open."""
    copies = cells[
        (cells["variant"] == BANKS)
        & (cells["width"] == cells["width"].iloc[0])
        & (cells["dtype"] == "float3")
        & (cells["commands"] == 1)
        & (cells["kernel"] == "copy2d_coalesced")
    ]
    profile = _cells("profile", PROFILE_SCHEMA)
    one = profile[(profile["dtype"] == "float3") & (profile["commands"] == 1)]
    return {"even": evenness(one), "hits": float(copies["row_hit_share"].iloc[0])}


def _plain(a: Answer) -> dict[str, Any]:
    return {
        **{f"{dtype} at {n}": value for (dtype, n), value in a.gbs.items()},
        **{f"{dtype} {commands}": value for (dtype, commands), value in a.coalesced.items()},
        "float_change": a.float_change,
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
