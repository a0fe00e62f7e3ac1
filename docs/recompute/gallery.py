"""What the gallery's kernels reach on an H200, and beside BabelStream and Kernel Tuner."""

from __future__ import annotations

from typing import Any

import pandas as pd

from .record import H200, Record, read_record
from .words import Claims, gbs, percent, rate, span, whole

FOLDER = H200.with_name("nvidia-h200-gallery")
DTYPES = ("float", "double")
SMALL = 2**25
SIDE = 8192
TRANSPOSES = {
    "naive": ("naive", 0),
    "tile": ("tile", 0),
    "padded tile": ("tile", 1),
    "padded tile, diagonal": ("tile-diagonal", 1),
}
AXES = ("TILE", "ROWS", "PAD", "block_x", "block_y", "threads", "grid", "unroll")


def values(claims: Claims) -> dict[str, Any]:
    """Tables of the gallery's page."""
    record = read_record(FOLDER)
    tuner = {name: record.benchmark(f"kernel_tuner_{name}") for name in ("host", "device")}
    for result in tuner.values():
        fastest = (result["fastest"][tool] for tool in ("gpushmoo", "kernel_tuner"))
        worse = [found["slower_by_the_other"] for found in fastest]
        claims.hold("Either tool's fastest is the other's to 1 %.", max(worse) < 0.01, worse)
    return {
        "cells": whole(len(record.ok)),
        "babelstream": _babelstream(record, claims),
        "transposes": _transposes(record, claims),
        "tile_gain": _gain(record, ("tile", 0), ("naive", 0)),
        "pad_gain": _gain(record, ("tile", 1), ("tile", 0)),
        "stencils": _table(record, "stencil5", ("global", "tiled"), SIDE),
        "reductions": _table(record, "reduce_sum", ("packs",), SMALL),
        "gather": _gather(record, claims),
        "tuner": [
            [
                words,
                f"{result['passes'][0]['gpushmoo']['wall_s']:.1f}",
                f"{result['passes'][0]['kernel_tuner']['wall_s']:.1f}",
                f"{result['ratio']['median']:.2f} ({result['ratio']['least']:.2f} to "
                f"{result['ratio']['greatest']:.2f})",
                str(len(result["passes"])),
            ]
            for words, result in zip(
                ("on the host, its documented way", "on the device, by code of our own"),
                tuner.values(),
                strict=True,
            )
        ],
        "tuner_cells": whole(tuner["host"]["passes"][0]["gpushmoo"]["cells"]),
    }


def _launch(cell: pd.Series) -> str:
    """``threads 128, unroll 4``."""
    named = [(a, cell[a]) for a in AXES if a in cell.index and pd.notna(cell[a])]
    return ", ".join(f"{axis} {int(value)}" for axis, value in named)


def _table(record: Record, kernel: str, variants: tuple[str, ...], width: int) -> list[list[str]]:
    """The fastest cell of each variant and type, and what the slowest reaches of it."""
    rows = []
    for dtype in DTYPES:
        for variant in variants:
            cells = record.of(kernel, dtype=dtype, variant=variant, width=width)
            best = record.best(kernel, dtype=dtype, variant=variant, width=width)
            worst = float(cells["bandwidth_gbs"].min() / best["bandwidth_gbs"])
            rows.append([dtype, variant, rate(best), _launch(best), percent(worst)])
    return rows


def _transposes(record: Record, claims: Claims) -> list[list[str]]:
    rows, best_of = [], {}
    for dtype in DTYPES:
        for words, (variant, pad) in TRANSPOSES.items():
            where = {"dtype": dtype, "variant": variant, "PAD": pad}
            best = record.best("transpose", **where)
            best_of[dtype, words] = float(best["bandwidth_gbs"])
            share = percent(float(best["over_copy"]))
            rows.append([dtype, words, rate(best), share, _launch(best)])
    for dtype in DTYPES:
        naive, tile, padded, diagonal = (best_of[dtype, words] for words in TRANSPOSES)
        claims.hold("A tile beats naive, padding beats none.", naive < tile < padded)
        claims.hold(
            "Diagonal order is worth less than 2 % either way.", abs(diagonal / padded - 1) < 0.02
        )
    return rows


def _gain(record: Record, one: tuple[str, int], other: tuple[str, int]) -> str:
    """How many times as fast the best of one way to transpose is as that of another, by type."""
    ratios = []
    for dtype in DTYPES:
        best = (
            record.best("transpose", dtype=dtype, variant=v, PAD=pad) for v, pad in (one, other)
        )
        first, second = (float(cell["bandwidth_gbs"]) for cell in best)
        ratios.append(first / second)
    return span(ratios, digits=3)


def _gather(record: Record, claims: Claims) -> list[list[str]]:
    best = {
        dtype: record.of("gather_stride", dtype=dtype).groupby("stride")["bandwidth_gbs"].max()
        for dtype in DTYPES
    }
    for dtype, series in best.items():
        found = float(series[8] / series[1])
        claims.hold("At a stride of 8 about a quarter is left.", 0.2 < found < 0.27, (dtype, found))
        claims.hold("64 is slower than 128.", bool(series[64] < series[128]), dtype)
    return [[whole(s), *(gbs(best[dtype][s]) for dtype in DTYPES)] for s in best["float"].index]


def _babelstream(record: Record, claims: Claims) -> list[list[str]]:
    """A row for each type, size and function: our best launch over theirs, and at their launch."""
    rows = []
    for compared in record.benchmark("babelstream")["compared"]:
        for function, result in compared["functions"].items():
            ratios = result["ours over theirs"]
            best = ratios["best launch, median, over max"]
            same = ratios["their launch, median, over max"]
            claims.hold("Our best launch is faster than BabelStream.", best["least"] > 1.0, best)
            claims.hold("At its launch ours is as fast to 1 %.", same["median"] > 0.99, same)
            launch = ", ".join(f"{axis} {value}" for axis, value in result["best launch"].items())
            numbers = (
                f"{r['median']:.3f} ({r['least']:.3f} to {r['greatest']:.3f})" for r in (best, same)
            )
            rows.append(
                [compared["dtype"], whole(compared["elements"]), function, launch, *numbers]
            )
    return rows


def _ratio(found: dict[str, float]) -> str:
    return f"{found['median']:.3f} ({found['least']:.3f} to {found['greatest']:.3f})"
