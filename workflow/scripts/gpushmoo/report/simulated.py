"""The pages of simulated devices: tables as predictions, open questions, the machine of today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ..analysis.questions import (
    BEST,
    COALESCED,
    PERSISTENT,
    SLOWER,
    UNCHANGED,
    Answer,
    answers,
)

Json = dict[str, Any]

LEVELS = {"bus": "one bus", "partitions": "partitions", "banks": "banks"}


def simulated_pages(
    tables: Sequence[pd.DataFrame],
    questions: Sequence[pd.DataFrame],
    measured: Sequence[pd.DataFrame],
) -> Json:
    """Rows of strings for the template, for each simulated device.

    `tables` and `questions` have the columns of SIMULATION_SCHEMA, `measured` those of
    SAME_MACHINE_SCHEMA; devices that measured nothing are left out.
    """
    return {
        "tables": [_tables(cells) for cells in tables],
        "questions": [_questions(cells) for cells in questions],
        "same_machine": [_same_machine(points) for points in measured if len(points)],
    }


def _tables(cells: pd.DataFrame) -> Json:
    shared = cells[cells["kernel"] == PERSISTENT]
    blocks = sorted(shared["num_partition"].unique())
    return {
        "device": str(cells["device"].iloc[0]),
        "blocks": [str(n) for n in blocks],
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


# Columns of table 1: element type and commands of an access.
_COPIES = (("float", 1), ("double", 1), ("float3", 1), ("float3", 3))


def _series(
    cells: pd.DataFrame, column: str, more: list[str]
) -> list[tuple[tuple[Any, ...], dict[Any, float]]]:
    """Bandwidth by `column` for each level, size and `more`, by level, then size."""
    order = list(LEVELS)
    groups = cells.groupby(["level", "width", *more], sort=False)
    found = [
        (tuple(key), dict(zip(part[column], part["bandwidth_gbs"], strict=True)))
        for key, part in groups
    ]
    dtypes = ["float", "double"]
    return sorted(
        found,
        key=lambda f: (order.index(f[0][0]), f[0][1], [dtypes.index(d) for d in f[0][2:]]),
    )


def _questions(cells: pd.DataFrame) -> Json:
    found = answers(cells)
    return {
        "device": str(cells["device"].iloc[0]),
        "size": f"{int(cells['width'].iloc[0])}²",
        "unchanged": f"{100 * UNCHANGED:.0f} %",
        "slower": f"{100 * SLOWER:.0f} %",
        "best": f"{100 * BEST:.1f} %",
        "rows": [_answer(a) for a in found],
        "verdicts": verdicts({a.variant: a for a in found}),
    }


def _answer(a: Answer) -> Json:
    def cell(dtype: str, n: int) -> str:
        return f"{a.gbs[dtype, n]:.1f}"

    return {
        "variant": a.variant,
        "gbs": [cell(dtype, n) for dtype in ("float", "double") for n in (16, 30, 32)],
        "facts": [
            _mark(a.float_stays),
            _mark(a.double_falls),
            _mark(a.thirty_best),
        ],
        "float3": [f"{a.float3_over_float(1):.2f}", f"{a.float3_over_float(3):.2f}"],
    }


def _mark(holds: bool) -> str:
    return "yes" if holds else "no"


def verdicts(by: Mapping[str, Answer]) -> list[Json]:
    """The questions and what the variants answer, in sentences whose numbers are those of `by`."""
    board, queued = by["board's clock: one bus"], by["board's clock: partitions"]
    even, alone = (
        by["board's clock: one bus, 32 SMs"],
        by["board's clock: one bus, one block an SM"],
    )
    half, ordered = by["half clock: one bus"], by["half clock: banks, in order"]
    spread = by["board's clock: partitions, hashed"]
    camping, chosen = by["half clock: partitions"], by["half clock: banks, choice of 32"]
    all_facts = [a.variant for a in by.values() if a.shows_all]
    return [
        {
            "question": "Why does double get slower from 16 to 32 blocks?",
            "answer": (
                f"Because blocks 31 and 32 are second blocks of two SMs. 16 blocks of double keep "
                f"the bus busy all the time ({board.gbs['double', 16]:.0f} GB/s with the memory at "
                f"the board's clock). On 32 the other SMs are done early, and for "
                f"{100 * board.lonely_share:.0f} % of the time two SMs work alone, who cannot fill "
                f"the bus: {board.gbs['double', 32]:.0f} GB/s ({_percent(board.double_change)}). "
                f"Float does not fill the bus on 16 blocks and has nothing to lose "
                f"({_percent(board.float_change)}). Switched off: on 32 SMs double does "
                f"{_percent(even.double_change)}. If an SM takes its second block only after its "
                f"first, the document's numbers come out whole: float "
                f"{_percent(alone.float_change)}, double {_percent(alone.double_change)}, 30 "
                f"blocks best. The document halves the memory's clock, where 8 blocks of double "
                f"fill the bus already and nothing falls ({_percent(half.double_change)}); that is "
                f"why its model could not show it."
            ),
        },
        {
            "question": "Do the banks of the memory explain it?",
            "answer": (
                f"They are not needed, and in order they contradict the document: at half clock "
                f"double does fall ({_percent(ordered.double_change)}), because reads and writes "
                f"of different blocks take turns at a partition, and each read waits for the write "
                f"before it; but so it does on 30 blocks "
                f"({ordered.gbs['double', 30]:.0f} GB/s), which the document found best. A "
                f"controller that may choose among 32 requests does "
                f"{_percent(chosen.double_change)}. Variants with all "
                f"three facts: {'; '.join(all_facts) or 'none'}."
            ),
        },
        {
            "question": "Why is float3's coalesced copy dramatically worse than float's?",
            "answer": (
                f"Not by camping. If a half-warp's 16 float3 are one access of 192 bytes, as the "
                f"document assumes, float3 is as fast as float at every level of detail "
                f"({camping.float3_over_float(1):.2f} times with partitions alone). But a "
                f"structure of three floats is aligned to 4 bytes, so that compiled code loads and "
                f"stores it by three commands, 12 bytes apart; by the coalescing rule of its day "
                f"each of them moves all 192 bytes. Traffic triples, and float3 gets "
                f"{camping.float3_over_float(3):.2f} times float's bandwidth."
            ),
        },
        {
            "question": "Does partition camping alone explain any of it?",
            "answer": (
                f"It deepens the fall of double and is not needed for it: from 16 to 32 blocks "
                f"double changes by {_percent(board.double_change)} on one bus, which knows no "
                f"partitions, by {_percent(queued.double_change)} with queues at the partitions, "
                f"and by {_percent(spread.double_change)} when addresses are hashed over them. Of "
                f"float3's collapse it explains nothing: one access, queues at the partitions, "
                f"{camping.float3_over_float(1):.2f} times float."
            ),
        },
    ]


def _percent(change: float) -> str:
    sign = "+" if change >= 0 else "−"
    return f"{sign}{abs(100 * change):.1f} %"


def _gbs(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _same_machine(points: pd.DataFrame) -> Json:
    levels = list(dict.fromkeys(points["level"]))
    dtypes = list(dict.fromkeys(points["dtype"]))
    by = points.set_index(["dtype", "num_partition", "level"])
    blocks = list(dict.fromkeys(points["num_partition"]))
    return {
        "device": str(points["device"].iloc[0]),
        "levels": [LEVELS[level] for level in levels],
        "dtypes": dtypes,
        "rows": [
            {
                "blocks": str(n),
                "cells": [
                    value
                    for dtype in dtypes
                    for value in (
                        _gbs(by.loc[(dtype, n, levels[0]), "measured_gbs"]),
                        _gbs(by.loc[(dtype, n, levels[-1]), "simulated_gbs"]),
                        *(_percent(by.loc[(dtype, n, level), "error"]) for level in levels),
                    )
                ],
            }
            for n in blocks
            if all((dtype, n, levels[0]) in by.index for dtype in dtypes)
        ],
    }
