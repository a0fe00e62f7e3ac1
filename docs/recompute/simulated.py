"""The simulated Tesla C1060 and its open questions, and the simulated H200 beside its record."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from gpushmoo.core.display import percent
from gpushmoo.storage.store import read_table
from tesla_c1060.answers import (
    ALONE,
    BEST,
    BOARD,
    CHANGED,
    EQUAL,
    EVEN,
    HALF,
    Answer,
    answers,
    as_good,
    named,
)
from tesla_c1060.chapter import RECORD
from tesla_c1060.checks import MEASURED_GBS, PUBLISHED, TWO_WITHIN, Check, published_checks
from tesla_c1060.figures.simulated import evenness
from tesla_c1060.predictions import GOOD, RULE, judge
from tesla_c1060.simulation.compare_measured import Point, points, predicted_gbs
from tesla_c1060.simulation.machine import (
    Level,
    Machine,
    at_board_clock,
    load_machine,
    read_cycle_cycles,
)
from tesla_c1060.simulation.run import PROFILE_SCHEMA, SIMULATION_SCHEMA

from .record import REFERENCE, ROOT, Record
from .words import Claims, span, whole_percent

DEVICES = ROOT / "reports/chapters/tesla_c1060/devices"
C1060 = DEVICES / "tesla-c1060.yaml"
# Simulated GB/s by level and point; minutes to compute: delete it to have `make docs` do so.
KEPT = REFERENCE / "nvidia-h200" / "simulated.json"
KERNEL = "block_eq_partition"
# Variant, and its words in the table.
SHOWN = (
    (named(HALF, Level.BUS), "document's halved memory clock, one bus"),
    (named(HALF, Level.BANKS), "the same, banks, choice of 32 requests"),
    (named(BOARD, Level.BUS), "board's memory clock (800 MHz), one bus"),
    (named(BOARD, Level.BUS, EVEN), "one bus, 32 SMs"),
    *(
        (named(BOARD, level, ALONE), f"**{words}, an SM takes its second block after its first**")
        for level, words in zip(Level, ("one bus", "partitions", "banks"), strict=True)
    ),
)
BANKS, SPREAD = named(HALF, Level.BANKS), f"board's clock: partitions, hashed, {ALONE}"


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """Numbers of the page on simulation."""
    return {**c1060(claims), "h200": h200(record, claims)}


def c1060(claims: Claims) -> dict[str, Any]:
    """The simulated Tesla C1060; nothing of it was measured."""
    asked = _cells("questions")
    sizes = answers(asked)
    first = next(iter(sizes.values()))

    def every(clock: str, changed: str, what: str, levels: Iterable[Level] = Level) -> list[float]:
        """A change of one machine at all sizes and `levels`, in percent."""
        names = [named(clock, level, changed) for level in levels]
        return [100 * getattr(by[name], what) for by in sizes.values() for name in names]

    alone = [by[named(BOARD, level, ALONE)] for by in sizes.values() for level in Level]
    claims.hold(
        "With one block an SM at a time float stays and double falls at every size and level.",
        all(a.float_stays and a.double_falls for a in alone),
    )
    claims.hold(
        "All three facts come out only with one block an SM at a time and the board's clock.",
        all(n.endswith(ALONE) and n.startswith(BOARD) for n, a in first.items() if a.shows_all),
    )
    claims.hold(
        "With two blocks an SM at the board's clock float rises at every size and level.",
        all(v > 100 * CHANGED for v in every(BOARD, "", "float_change")),
    )
    checks = computed_checks()
    plain = [c for c in checks if not c.corrects and c.ours is not None]
    claims.hold("Every number of the text comes out as published.", all(c.agrees for c in plain))
    machine = load_machine(C1060)
    return {
        "numbers": sum(c.reproduced for c in checks),
        "arithmetic": sum(c.arithmetic for c in plain),
        "ratios": sum(c.within > 0 for c in plain),
        "ratio_within": f"{100 * TWO_WITHIN:.0f} %",
        "corrections": sum(c.corrects for c in checks),
        "measured": f"{MEASURED_GBS} GB/s",
        "read_cycle": _read_cycle(machine),
        "camping": _camping(claims),
        "threshold": f"{100 * BEST:.1f} %",
        "equal": f"{as_good(alone)} of {len(alone)}",
        "equal_within": f"±{100 * EQUAL:.0f} %",
        "rows": [
            [words, _three(first[n], "float"), _three(first[n], "double"), _facts(first[n])]
            for n, words in SHOWN
        ],
        "changed": f"{100 * CHANGED:.0f} %",
        "alone_double": _span(every(BOARD, ALONE, "double_change")),
        "alone_float": _span(every(BOARD, ALONE, "float_change")),
        "together_double": _span(every(BOARD, "", "double_change")),
        "together_float": _span(every(BOARD, "", "float_change")),
        "half_float": _span(every(HALF, ALONE, "float_change")),
        "half_double": _span(every(HALF, "", "double_change")),
        "best": f"{sum(a.thirty_best for a in alone)} of {len(alone)}",
        "lonely": span((100 * a.lonely_share for a in alone), " %"),
        "fall_bus": _span(every(BOARD, ALONE, "double_change", [Level.BUS])),
        "fall_queues": _span(every(BOARD, ALONE, "double_change", [Level.PARTITIONS])),
        "fall_hashed": _span(100 * by[SPREAD].double_change for by in sizes.values()),
        **_float3(asked, first[BANKS]),
        **_tiles(claims),
    }


def _read_cycle(machine: Machine) -> dict[str, str]:
    """The time of one read at the clocks of its timing's part, of the board and of its half."""
    cycles, board = machine.t_ras_cycles + machine.t_rp_cycles, at_board_clock(machine)
    part = float(PUBLISHED["MHz"]["clock of the part whose timing is taken over"])
    least_most = (PUBLISHED["core cycles"][f"latency, {end}"] for end in ("least", "most"))
    half = float(read_cycle_cycles(machine))
    return {
        "part": f"{1e3 * cycles / part:.1f}",
        "board": f"{1e3 * cycles / board.memory_clock_mhz:.1f}",
        "half": f"{1e3 * cycles / machine.memory_clock_mhz:.1f}",
        "board_cycles": f"{float(read_cycle_cycles(board)):g}",
        "far": " to ".join(f"{float(latency) / half:.1f}" for latency in least_most),
    }


def _camping(claims: Claims) -> str:
    """How far queues at the partitions change double over float in the coalesced copy."""
    cells = _cells("tables")
    cells = cells[(cells["kernel"] == "copy2d_coalesced") & (cells["commands"] == 1)]
    gbs = cells.pivot_table("bandwidth_gbs", ["level", "variant", "width"], "dtype")
    ratio = gbs["double"] / gbs["float"]
    most = float((ratio["partitions"] / ratio["bus"] - 1).abs().max())
    claims.hold("Queues change double over float by less than 2 %.", most < 0.02, most)
    return percent(most)


def _span(changes: Iterable[float]) -> str:
    """``−28.4 to −10.5 %``; `changes` are in percent."""
    low, *_, high = (f"{v:+.1f}".replace("-", "−") for v in sorted(changes))
    return f"{low} to {high} %"


def _three(a: Answer, dtype: str) -> str:
    return " / ".join(f"{a.gbs[dtype, n]:.1f}" for n in (16, 30, 32))


def _facts(a: Answer) -> str:
    """Which of the document's three facts a variant shows."""
    if a.shows_all:
        return "**yes**"
    facts = {"float stays": a.float_stays, "double falls": a.double_falls, "30 best": a.thirty_best}
    shown = [words for words, holds in facts.items() if holds]
    return f"only: {', '.join(shown)}" if shown else "none"


def _float3(cells: pd.DataFrame, banks: Answer) -> dict[str, str]:
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
    return {
        "even": whole_percent(evenness(one)),
        "hits": whole_percent(float(copies["row_hit_share"].iloc[0])),
        "float3_one": f"{banks.coalesced['float3', 1]:.1f}",
        "float_one": f"{banks.coalesced['float', 1]:.1f}",
        "float3_three": f"{banks.coalesced['float3', 3]:.0f}",
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
    )
    found = judge(cells[cells["level"] == "banks"])
    assert found is not None
    claims.hold("With banks it is mostly not as good as the best.", found.good < found.cases / 2)
    return {
        "tiles_good": f"{100 * GOOD:.0f} %",
        "tiles_count": f"{found.good} of {found.cases}",
        "tiles_worst": whole_percent(found.worst),
        "tiles_other": whole_percent(found.other),
    }


@cache
def computed_checks() -> tuple[Check, ...]:
    """The document's numbers beside ours."""
    return tuple(published_checks(load_machine(C1060)))


def _recorded(kind: str) -> Path:
    """The file of this kind that the record has of the simulated device."""
    (file,) = RECORD.glob(f"tesla-c1060-{kind}-*")
    return file


def _cells(kind: str, schema: pa.Schema = SIMULATION_SCHEMA) -> pd.DataFrame:
    return read_table(_recorded(kind), schema).to_pandas()


def h200(record: Record, claims: Claims) -> dict[str, Any]:
    """Errors of each level of detail on the recorded cells; nothing was fitted to them."""
    machine = load_machine(DEVICES / "nvidia-h200.yaml")
    wanted = points(machine, record.of(KERNEL))
    if not KEPT.exists():
        found = {
            level.value: {name_of(p): predicted_gbs(machine, p, level) for p in wanted}
            for level in Level
        }
        KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    table = pd.DataFrame({"dtype": [p.dtype for p in wanted], "blocks": [p.blocks for p in wanted]})
    measured = pd.Series([p.measured_gbs for p in wanted])
    for level in kept:
        table[level] = pd.Series([kept[level][name_of(p)] for p in wanted]) / measured - 1
    few, capacity = table["blocks"] < machine.n_sm, int(table["blocks"].max()) // 2
    many = table[~few]
    claims.hold("From one block an SM on 'banks' is too fast.", bool((many["banks"] > 0).all()))
    at = dict(zip(zip(table["dtype"], table["blocks"], strict=True), measured, strict=True))
    banks = dict(zip(at, measured * (1 + table["banks"]), strict=True))
    fall = {
        dtype: [of[dtype, capacity + 1] / of[dtype, capacity] for of in (banks, at)]
        for dtype in ("float", "double")
    }
    claims.hold(
        "The fall past the last resident block comes out.",
        all(abs(simulated - real) < 0.08 for simulated, real in fall.values()),
    )
    return {
        "rows": [
            [words, *(percent(float(part[level].abs().median())) for level in kept)]
            for words, part in (
                ("up to 32 blocks (bandwidth is proportional to them)", table[few]),
                ("from one block a multiprocessor on", many),
            )
        ],
        "levels": list(kept),
        "fall": {
            dtype: f"{whole_percent(simulated)} (measured {whole_percent(real)})"
            for dtype, (simulated, real) in fall.items()
        },
    }


def name_of(point: Point) -> str:
    """What tells a simulated point from the others."""
    return f"{point.dtype} {point.blocks} {point.tiling}"
