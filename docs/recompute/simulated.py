"""The simulated Tesla C1060 and its open questions, and the simulated H200 beside its record."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from gpushmoo.core.display import percent
from gpushmoo.storage.store import read_table
from tesla_c1060.answers import (
    PARAMETERS,
    camping_is_not_needed,
    changes,
    commands_slow_float3,
    region,
    search_page,
    second_blocks_slow_double,
    span,
    worded,
)
from tesla_c1060.chapter import RECORD
from tesla_c1060.checks import PUBLISHED, TWO_WITHIN, Check, published_checks
from tesla_c1060.figures.simulated import evenness
from tesla_c1060.predictions import GOOD, RULE, judge
from tesla_c1060.search import SEARCH_SCHEMA
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
from .words import Claims, whole_percent

DEVICES = ROOT / "reports/chapters/tesla_c1060/devices"
C1060 = DEVICES / "tesla-c1060.yaml"
# Simulated GB/s by level and point; minutes to compute: delete it to have `make docs` do so.
KEPT = REFERENCE / "nvidia-h200" / "simulated.json"
KERNEL = "block_eq_partition"


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """Numbers of the page on simulation."""
    return {**c1060(claims), "h200": h200(record, claims)}


def c1060(claims: Claims) -> dict[str, Any]:
    """The simulated Tesla C1060; nothing of it was measured."""
    searched = read_table(_recorded("search"), SEARCH_SCHEMA).to_pandas()
    found, told = region(searched), search_page(searched)
    whole = found.all_shown
    claims.hold("Machines show all facts.", not whole.empty)
    claims.hold("All of them hold one block a multiprocessor.", second_blocks_slow_double(found))
    claims.hold("One bus suffices.", camping_is_not_needed(found))
    claims.hold("float3 needs its three commands.", commands_slow_float3(found))
    for name, values in (("issue", ["half-warp", "warp"]), ("memory_clock", ["800 MHz"])):
        claims.hold(f"{name} of the machines left", found.values(name) == values)
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
        "read_cycle": _read_cycle(machine),
        "camping": _camping(claims),
        "machines": told["machines"],
        "left": len(whole),
        "facts": told["facts"],
        "region": [
            [PARAMETERS[name], worded(name, found.tried(name)), worded(name, found.values(name))]
            for name in PARAMETERS
        ],
        "thirty": told["facts"][-1][2],
        "latencies": worded("latency_cycles", found.values("latency_cycles")),
        "lonely": span(whole["lonely_share"]),
        "busy": span(whole["bus_busy_share"]),
        "double": changes(whole["double_change"]),
        "float": changes(whole["float_change"]),
        "even": changes(whole["even_change"]),
        "one": span(whole["float3_one"]),
        "three": span(whole["float3_three"]),
        **_float3(_cells("tables")),
        **_tiles(claims),
    }


def _read_cycle(machine: Machine) -> dict[str, str]:
    """The time of one read at the clocks of its timing's part, of the board and of its half."""
    cycles = machine.t_ras_cycles + machine.t_rp_cycles
    board = at_board_clock(machine)
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


def _float3(tables: pd.DataFrame) -> dict[str, str]:
    """How even the partitions' work is in the copy by one access, and how often rows are open."""
    copies = tables[
        (tables["kernel"] == "copy2d_coalesced")
        & (tables["variant"] == tables["variant"].iloc[0])
        & (tables["width"] == tables["width"].min())
        & (tables["level"] == "banks")
    ].set_index(["dtype", "commands"])
    profile = _cells("profile", PROFILE_SCHEMA)
    one = profile[(profile["dtype"] == "float3") & (profile["commands"] == 1)]
    return {
        "even_partitions": whole_percent(evenness(one)),
        "hits": whole_percent(float(copies["row_hit_share"]["float3", 1])),
        "size": f"{copies['width'].iloc[0]}²",
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
    few = table["blocks"] < machine.n_sm
    capacity = int(table["blocks"].max()) // 2
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
