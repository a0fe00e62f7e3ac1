"""The chapter's page: the document's numbers, its tables as predictions, its open questions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from gpushmoo.core.schema import SIMULATION_SCHEMA, Status
from gpushmoo.report.chapter_pages import Measured, Page, figures_of
from gpushmoo.report.simulated import LEVELS, signed
from gpushmoo.report.tables import Json, Namer, namer
from gpushmoo.storage.store import read_table
from gpushmoo.storage.wholefile import read_json

from .answers import (
    BEST,
    COALESCED,
    PERSISTENT,
    SLOWER,
    UNCHANGED,
    Answer,
    answers,
    banks_contradict,
    camping_deepens,
    commands_slow_float3,
    second_blocks_slow_double,
)


def page(measured: Measured) -> Page:
    """What the simulated device says, and whether the measured one keeps the document's law."""
    slips = (measured.folder / "published" / "slips.json").read_text(encoding="utf-8")

    def simulated(kind: str) -> list[pd.DataFrame]:
        files = measured.reads.get(kind, ())
        return [read_table(file, SIMULATION_SCHEMA).to_pandas() for file in files]

    return Page(
        {
            "is_simulated": bool(measured.params),
            "checks": [
                row
                for file in measured.reads.get("checks", ())
                for row in check_rows(read_json(file)["checks"])
            ],
            "simulated": figures_of(measured, "simulated"),
            "tables": [_tables(cells, measured.params) for cells in simulated("tables")],
            "questions": [_questions(cells, measured.params) for cells in simulated("questions")],
            "question_figures": figures_of(measured, "questions", "float3"),
            "doubling": doubling_rows(measured.cells, namer(measured.cells)),
            "slips": json.loads(slips),
        }
    )


def _tables(cells: pd.DataFrame, device: Mapping[str, Any]) -> Json:
    shared = cells[cells["kernel"] == PERSISTENT]
    blocks = sorted(shared["num_partition"].unique())
    return {
        "device": str(cells["device"].iloc[0]),
        "blocks": [str(n) for n in blocks],
        "law": _law(shared),
        "access": str(FLOAT3 * device["half_warp"]),
        "shared": [
            {
                "level": LEVELS[str(level)],
                "size": f"{size}²",
                "dtype": str(dtype),
                "gbs": [f"{by[n]:.1f}" for n in blocks],
            }
            for (level, size, dtype), by in _series(shared, "num_partition", ["dtype"])
        ],
        "coalesced": [
            {
                "level": LEVELS[str(level)],
                "size": f"{size}²",
                "gbs": [f"{by[key]:.1f}" for key in _COPIES],
            }
            for (level, size), by in _series(
                cells[cells["kernel"] == COALESCED].assign(
                    copy=lambda c: list(zip(c["dtype"], c["commands"], strict=True))
                ),
                "copy",
                [],
            )
        ],
    }


# The bus holds up no bandwidth under this share of the highest; a law holds within the other.
_FREE, _WITHIN = 0.5, 0.1


def _law(shared: pd.DataFrame) -> str:
    """Whether bandwidth doubles with the blocks, and with the type, until the bus is full."""
    growths, gains = [], []
    for _, cells in shared.groupby(["level", "width"], sort=False):
        table = cells.pivot_table("bandwidth_gbs", "num_partition", "dtype")
        free = table[table["double"] < _FREE * table.to_numpy().max()]
        gains += list(free["double"] / free["float"])
        for n in free.index.intersection(2 * free.index):
            growths += list(free.loc[n] / free.loc[n // 2])
    if not (growths and gains):
        return ""
    if all(abs(ratio / 2 - 1) <= _WITHIN for ratio in [*growths, *gains]):
        return "Bandwidth doubles with the blocks, double at twice float, until the bus is full."
    return (
        f"Below half of the highest bandwidth twice the blocks get {min(growths):.2f} to "
        f"{max(growths):.2f} times as much, and double {min(gains):.2f} to {max(gains):.2f} times "
        "float's bandwidth."
    )


FLOAT3 = 12  # bytes of a structure of three floats
# Columns of table 1: element type and commands of an access.
_COPIES = (("float", 1), ("double", 1), ("float3", 1), ("float3", 3))


def _series(
    cells: pd.DataFrame, column: str, more: list[str]
) -> list[tuple[tuple[Any, ...], dict[Any, float]]]:
    """Bandwidth by `column` for each level, size and `more`, by level, then size."""
    order = list(LEVELS)
    groups = cells.groupby(["level", "width", *more], sort=False)
    series = [
        (tuple(key), dict(zip(part[column], part["bandwidth_gbs"], strict=True)))
        for key, part in groups
    ]
    dtypes = ["float", "double"]
    return sorted(
        series, key=lambda f: (order.index(f[0][0]), f[0][1], [dtypes.index(d) for d in f[0][2:]])
    )


def _questions(cells: pd.DataFrame, device: Mapping[str, Any]) -> Json:
    variants = answers(cells)
    return {
        "clock_mhz": f"{device['memory_clock_mhz']:g}",
        "board_clock_mhz": f"{device['board_clock_mhz']:g}",
        "device": str(cells["device"].iloc[0]),
        "size": f"{int(cells['width'].iloc[0])}²",
        "unchanged": f"{100 * UNCHANGED:.0f} %",
        "slower": f"{100 * SLOWER:.0f} %",
        "best": f"{100 * BEST:.1f} %",
        "rows": [_answer(a) for a in variants],
        "verdicts": verdicts({a.variant: a for a in variants}, device["n_sm"], device["half_warp"]),
    }


def _answer(a: Answer) -> Json:
    def cell(dtype: str, n: int) -> str:
        return f"{a.gbs[dtype, n]:.1f}"

    return {
        "variant": a.variant,
        "gbs": [cell(dtype, n) for dtype in ("float", "double") for n in (16, 30, 32)],
        "facts": [_mark(a.float_stays), _mark(a.double_falls), _mark(a.thirty_best)],
        "float3": [f"{a.float3_over_float(1):.2f}", f"{a.float3_over_float(3):.2f}"],
    }


def _mark(holds: bool) -> str:
    return "yes" if holds else "no"


def verdicts(by: Mapping[str, Answer], n_sm: int, half_warp: int) -> list[Json]:
    """The questions and what the variants of a device with `n_sm` SMs answer, `by` name.

    A device that does not show what an answer rests on gets its numbers alone.
    """
    return [
        {
            "question": "Why does double get slower from 16 to 32 blocks?",
            "answer": _why_double_falls(by, n_sm),
        },
        {"question": "Do the banks of the memory explain it?", "answer": _banks(by)},
        {
            "question": "Why is float3's coalesced copy dramatically worse than float's?",
            "answer": _float3(by, half_warp),
        },
        {"question": "Does partition camping alone explain any of it?", "answer": _camping(by)},
    ]


def _why_double_falls(by: Mapping[str, Answer], n_sm: int) -> str:
    board, half = by["board's clock: one bus"], by["half clock: one bus"]
    even, alone = (
        by["board's clock: one bus, 32 SMs"],
        by["board's clock: one bus, one block an SM"],
    )
    if not (n_sm < 32 <= 2 * n_sm and second_blocks_slow_double(by)):
        return (
            f"This simulated device, of {n_sm} SMs, does not tell. From 16 to 32 blocks on one bus "
            f"at the board's clock double does {signed(board.double_change)} and float "
            f"{signed(board.float_change)}; on 32 SMs double does {signed(even.double_change)}, "
            f"with one block an SM at a time {signed(alone.double_change)}, at half the clock "
            f"{signed(half.double_change)}."
        )
    second, work = _second_blocks(n_sm)
    return (
        f"Because {second}. 16 blocks of double keep "
        f"the bus busy all the time ({board.gbs['double', 16]:.0f} GB/s with the memory at "
        f"the board's clock). On 32 the other SMs are done early, and for "
        f"{100 * board.lonely_share:.0f} % of the time {work} alone, who cannot fill "
        f"the bus: {board.gbs['double', 32]:.0f} GB/s ({signed(board.double_change)}). "
        f"Float does not fill the bus on 16 blocks and has nothing to lose "
        f"({signed(board.float_change)}). Switched off: on 32 SMs double does "
        f"{signed(even.double_change)}. If an SM takes its second block only after its "
        f"first, the document's numbers come out whole: float "
        f"{signed(alone.float_change)}, double {signed(alone.double_change)}, 30 "
        f"blocks best. The document halves the memory's clock, where 8 blocks of double "
        f"fill the bus already and nothing falls ({signed(half.double_change)}); that is "
        f"why its model could not show it."
    )


def _second_blocks(n_sm: int) -> tuple[str, str]:
    """Which of 32 blocks share an SM, and who works when the others are done."""
    count = 32 - n_sm
    if count == 1:
        return "block 32 is the second block of one SM", "one SM works"
    sms = f"{'two' if count == 2 else count} SMs"
    last = "and 32" if count == 2 else "to 32"
    return f"blocks {n_sm + 1} {last} are second blocks of {sms}", f"{sms} work"


def _banks(by: Mapping[str, Answer]) -> str:
    board, ordered = by["board's clock: one bus"], by["half clock: banks, in order"]
    chosen = by["half clock: banks, choice of 32"]
    whole = "; ".join(a.variant for a in by.values() if a.shows_all) or "none"
    if banks_contradict(by):
        text = (
            f"They are not needed, and in order they contradict the document: at half clock "
            f"double does fall ({signed(ordered.double_change)}), because reads and writes "
            f"of different blocks take turns at a partition, and each read waits for the write "
            f"before it; but so it does on 30 blocks "
            f"({ordered.gbs['double', 30]:.0f} GB/s), which the document found best."
        )
    else:
        text = (
            f"This simulated device does not tell. From 16 to 32 blocks double does "
            f"{signed(board.double_change)} on one bus at the board's clock, which knows no banks, "
            f"and {signed(ordered.double_change)} with banks in order at half clock, where 30 "
            f"blocks get {ordered.gbs['double', 30]:.0f} GB/s."
        )
    return (
        f"{text} A controller that may choose among 32 requests does "
        f"{signed(chosen.double_change)}. Variants with all three facts: {whole}."
    )


def _float3(by: Mapping[str, Answer], half_warp: int) -> str:
    camping, access = by["half clock: partitions"], FLOAT3 * half_warp
    if not commands_slow_float3(by):
        return (
            f"This simulated device does not tell. By one access of a half-warp float3 gets "
            f"{_times(by, 1)} times float's bandwidth over all variants, by the three commands of "
            f"compiled code {_times(by, 3)} times."
        )
    return (
        f"Not by camping. If a half-warp's {half_warp} float3 are one access of {access} bytes, as "
        f"the document assumes, float3 is as fast as float at every level of detail "
        f"({camping.float3_over_float(1):.2f} times with partitions alone). But a "
        f"structure of three floats is aligned to 4 bytes, so that compiled code loads and "
        f"stores it by three commands, 12 bytes apart; by the coalescing rule of its day "
        f"each of them moves all {access} bytes. Traffic triples, and float3 gets "
        f"{camping.float3_over_float(3):.2f} times float's bandwidth."
    )


def _times(by: Mapping[str, Answer], commands: int) -> str:
    ratios = [a.float3_over_float(commands) for a in by.values()]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def _camping(by: Mapping[str, Answer]) -> str:
    board, queued = by["board's clock: one bus"], by["board's clock: partitions"]
    spread, camping = by["board's clock: partitions, hashed"], by["half clock: partitions"]
    changes = (
        f"from 16 to 32 blocks double changes by {signed(board.double_change)} on one bus, which "
        f"knows no partitions, by {signed(queued.double_change)} with queues at the partitions, "
        f"and by {signed(spread.double_change)} when addresses are hashed over them."
    )
    one_access = f"one access, queues at the partitions, {camping.float3_over_float(1):.2f} times"
    if not (camping_deepens(by) and commands_slow_float3(by)):
        return (
            f"This simulated device does not show that it does: {changes} With "
            f"{one_access} float's bandwidth for float3."
        )
    return (
        f"It deepens the fall of double and is not needed for it: {changes} Of "
        f"float3's collapse it explains nothing: {one_access} float."
    )


def check_rows(checks: Sequence[Json]) -> list[Json]:
    """Rows of the page's table of the document's numbers beside ours, as texts."""
    rows = []
    for c in checks:
        digits = c["decimals"]
        rows.append(
            {
                "quantity": c["quantity"] + (", without the slip" if c["corrects"] else ""),
                "published": f"{c['published']:.{digits}f}",
                # One digit more than the document printed, where it printed a fraction.
                "ours": f"{c['ours']:.{digits + 1 if digits else 0}f}",
                "unit": c["unit"],
                "how": c["how"],
            }
        )
    return rows


def doubling_rows(cells: pd.DataFrame, names: Namer) -> list[Json]:
    """The doubling law as measured: bandwidth at 1, 2, 4, … blocks, and double over float."""
    ok = cells[(cells["status"] == Status.OK) & (cells["kernel"] == "block_eq_partition")]
    if "num_partition" not in ok.columns:
        return []
    rows = []
    keys = ["variant", "height", "width", "cache_state", "device_name"]
    for key, group in ok.groupby(keys, sort=True):
        series = f"{key[0]}, {names.size(dict(zip(keys, key, strict=True)))}"
        table = group.pivot_table("bandwidth_gbs", "num_partition", "dtype")
        for n in (1, 2, 4, 8, 16, 30, 32):
            if n not in table.index or not {"float", "double"} <= set(table.columns):
                continue
            single, double = table.loc[n, "float"], table.loc[n, "double"]
            rows.append(
                {
                    "series": series,
                    "blocks": str(n),
                    "float": f"{single:.3g}",
                    "double": f"{double:.3g}",
                    "ratio": f"{double / single:.2f}",
                    "float_gain": f"{single / table.loc[1, 'float']:.2f}"
                    if 1 in table.index
                    else "—",
                    "double_gain": f"{double / table.loc[1, 'double']:.2f}"
                    if 1 in table.index
                    else "—",
                }
            )
    return rows
