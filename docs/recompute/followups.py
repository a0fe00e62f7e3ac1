"""What the documents describe and the full sweep leaves out, measured on an H200."""

from __future__ import annotations

import json
from typing import Any

from .record import H200, read_record
from .words import Claims, gbs, joined, span, whole

FOLDER = H200.with_name("nvidia-h200-documents")
DTYPES = ("float", "double")
PARTITION_BYTES = 256
WRITING = {"none": "", "one a thread": "-written", "one a block": "-reduced"}


def values(claims: Claims) -> dict[str, Any]:
    """Tiles of other widths, the index computation, the document's sizes, and a reduced sum."""
    record = read_record(FOLDER)
    index = json.loads((FOLDER / "benchmarks/index.json").read_text(encoding="utf-8"))
    tiles = record.of("block_tiles")
    rows, shares, narrow = [], [], []
    for (dtype, blocks), part in tiles.groupby(["dtype", "num_partition"], observed=True):
        best = part.groupby("row_bytes")["bandwidth_gbs"].max()
        shares.append(float(best[PARTITION_BYTES] / best.max()))
        narrow.append(float(best.iloc[0] / best.max()))
        pads = part[part["row_bytes"] == PARTITION_BYTES]["bandwidth_gbs"]
        rows.append(
            [
                str(dtype),
                whole(blocks),
                *(gbs(v) for v in best),
                whole(best.idxmax()),
                f"{100 * (pads.max() / pads.min() - 1):.1f} %",
            ]
        )
    claims.hold(
        "Rows of 256 bytes are as good as any, rows of 64 bytes are not.",
        min(shares) > 0.99 and max(narrow) < 0.95,
        (shares, narrow),
    )
    small = {}
    for dtype in DTYPES:
        for n in (256, 512):
            part = record.of("block_eq_partition", dtype=dtype, width=n, cache_state="warm")
            best = part.groupby("num_partition")["bandwidth_gbs"].max()
            small[dtype, n] = best
    sums = {
        words: record.best("tex2d_sum", variant=f"block-point-clamp{suffix}")
        for words, suffix in WRITING.items()
    }
    return {
        "cells": whole(len(record.ok)),
        "tiles": rows,
        "widths": joined(str(int(w)) for w in sorted(tiles["row_bytes"].unique())),
        "of_best": span((100 * share for share in shares), digits=3),
        "narrow": span((100 * share for share in narrow), digits=2),
        "index": [
            [
                "integer division" if one["variant"] == "exact" else "float reciprocal",
                str(one["warps"]),
                f"{one['index_cycles']:.1f}",
            ]
            for one in index["index"]
        ],
        "small": [
            [
                dtype,
                f"{n}²",
                *(gbs(best[p]) for p in (1, 8, 16, 30, 32)),
                gbs(best.max()),
                whole(best.idxmax()),
            ]
            for (dtype, n), best in small.items()
        ],
        "sums": [
            [
                words,
                f"{best['median_s'] * 1e6:.1f}",
                f"{int(best['block_x'])} × {int(best['block_y'])}",
            ]
            for words, best in sums.items()
        ],
    }
