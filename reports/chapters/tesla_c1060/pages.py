"""The chapter's page: the document's numbers, its tables as predictions, its open questions."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pandas as pd
from gpushmoo.core.schema import Status
from gpushmoo.report.pages import Measured, Page, figures_of
from gpushmoo.report.tables import Json, Namer
from gpushmoo.storage.store import read_table
from gpushmoo.storage.wholefile import read_json

from .answers import search_page, signed
from .checks import PUBLISHED
from .predictions import measured_widths, simulated_widths, tables
from .search import SEARCH_SCHEMA
from .simulation.machine import LEVELS
from .simulation.run import SAME_MACHINE_SCHEMA, SIMULATION_SCHEMA

TITLE = "Partition camping of float and double on a Tesla C1060"
INTRODUCTION = (
    "The document is the page “performance deviation between ‘float’ and ‘double’” at National "
    "Tsing Hua University (oz.nthu.edu.tw/~d947207; author and year are not named), measured on "
    "a Tesla C1060.",
    "It asks why copies of float and of double reach different bandwidths, and explains that by "
    "the memory's partitions and the timing of GDDR3.",
    "The next pages compare its numbers with a simulation of that device, and its rules with "
    "the same kernels on this machine.",
)


def page(measured: Measured) -> Page:
    """What the simulated device says, and whether the measured one keeps the document's law."""

    def simulated(kind: str) -> list[pd.DataFrame]:
        files = measured.reads.get(kind, ())
        return [read_table(file, SIMULATION_SCHEMA).to_pandas() for file in files]

    checks = [read_json(file) for file in measured.reads.get("checks", ())]
    return Page(
        {
            "is_simulated": bool(measured.params),
            "checks": [row for found in checks for row in check_rows(found["checks"])],
            "simulated": figures_of(measured, "simulated"),
            "tables": [tables(cells, measured.params) for cells in simulated("tables")],
            "search": [
                search_page(read_table(file, SEARCH_SCHEMA).to_pandas())
                for file in measured.reads.get("search", ())
            ],
            "tiles": [
                *map(simulated_widths, simulated("tiles")),
                *filter(None, [measured_widths(measured.cells, Namer(measured.cells))]),
            ],
            "index": [
                index_table(json.loads(file.read_text(encoding="utf-8")))
                for file in measured.reads.get("index", ())
            ],
            "float3_figures": figures_of(measured, "float3"),
            "same_machine_figures": figures_of(measured, "same_machine"),
            "same_machine": [
                same_machine_page(points)
                for file in measured.reads.get("measured", ())
                if len(points := read_table(file, SAME_MACHINE_SCHEMA).to_pandas())
            ],
            "law_blocks": [str(n) for n in LAW_BLOCKS],
            "doubling": doubling_rows(measured.cells, Namer(measured.cells)),
            "coalesced": coalesced_rows(measured.cells, Namer(measured.cells)),
            **json.loads((measured.folder / "published/slips.json").read_text("utf-8")),
        },
        title=TITLE,
        introduction=INTRODUCTION,
        place=1,
    )


def check_rows(checks: Sequence[Json]) -> list[Json]:
    """Rows of the page's table of the document's numbers beside ours, as texts."""
    return [
        {
            "quantity": c["quantity"] + (", without the slip" if c["corrects"] else ""),
            "published": f"{c['published']:.{c['decimals']}f}",
            # One digit more than the document printed, where it printed a fraction; of ratios two.
            "ours": "—"
            if c["ours"] is None
            else f"{c['ours']:.{2 if c['within'] else c['decimals'] + (c['decimals'] > 0)}f}",
            "unit": c["unit"],
            "how": ("arithmetic: " if c["arithmetic"] else "") + c["how"],
        }
        for c in checks
    ]


# Numbers of blocks in the document's tables 4 to 6.
LAW_BLOCKS = [1, 2, 4, 8, 16, 30, 32]
# The element types of the document's table 1, and its BLOCK_ROWS.
_TABLE_1 = ("float", "double", "float3")
BLOCK_ROWS = 8


def doubling_rows(cells: pd.DataFrame, names: Namer) -> list[Json]:
    """The doubling law as measured: bandwidth over that of one block, and double over float."""
    ok = cells[(cells["status"] == Status.OK) & (cells["kernel"] == "block_eq_partition")]
    if "num_partition" not in ok.columns:
        return []
    rows = []
    keys = ["variant", "height", "width", "cache_state", "device_name"]
    for key, group in ok.groupby(keys, sort=True):
        series = f"{key[0]}, {names.size(dict(zip(keys, key, strict=True)))}"
        table = group.pivot_table("bandwidth_gbs", "num_partition", "dtype").reindex(LAW_BLOCKS)
        if not {"float", "double"} <= set(table.columns):
            continue
        for what, values in (
            ("float, of one block", table["float"] / table.loc[1, "float"]),
            ("double, of one block", table["double"] / table.loc[1, "double"]),
            ("double / float", table["double"] / table["float"]),
        ):
            shown = ["—" if pd.isna(value) else f"{value:.2f}" for value in values]
            rows.append({"series": series, "what": what, "values": shown})
    return rows


def coalesced_rows(cells: pd.DataFrame, names: Namer) -> list[Json]:
    """Table 1 as measured: the document's copy with its 8 rows of threads, over that of float."""
    ok = cells[(cells["status"] == Status.OK) & (cells["kernel"] == "copy2d_document")]
    if ok.empty:
        return []
    printed = ok[(ok["variant"] == "published") & (ok["block_rows"] == BLOCK_ROWS)]
    rows = []
    keys = ["height", "width", "cache_state", "device_name"]
    for key, group in printed.groupby(keys, sort=True):
        gbs = group.groupby("dtype")["bandwidth_gbs"].mean()
        types = [name for name in ("double", "float3") if {name, "float"} <= set(gbs.index)]
        ratios = {f"{name}_ratio": f"{gbs[name] / gbs['float']:.2f}" for name in types}
        rows.append(
            {
                "where": names.size(dict(zip(keys, key, strict=True))),
                **{name: _gbs(gbs[name]) if name in gbs else "—" for name in _TABLE_1},
                **{f"{name}_ratio": "—" for name in _TABLE_1[1:]},
                **ratios,
            }
        )
    return rows


def same_machine_page(points: pd.DataFrame) -> Json:
    """Rows of strings for the template; `points` have the columns of SAME_MACHINE_SCHEMA."""
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
                        *(signed(by.loc[(dtype, n, level), "error"]) for level in levels),
                    )
                ],
            }
            for n in blocks
            if all((dtype, n, levels[0]) in by.index for dtype in dtypes)
        ],
    }


def _gbs(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def index_table(found: Json) -> Json:
    """Return the rows of the page from the file that experiments/gpu/measure_index.py wrote."""
    return {
        "device": str(found["device"]["name"]),
        "published": PUBLISHED["core cycles"]["index computation, measured"],
        "rows": [
            {
                "variant": str(row["variant"]),
                "threads": str(row["threads"]),
                "loop": f"{row['loop_cycles']:.1f}",
                "bare": f"{row['bare_cycles']:.1f}",
                "index": f"{row['index_cycles']:.1f}",
                "per_warp": f"{row['index_cycles'] / row['warps']:.2f}",
            }
            for row in found["index"]
        ],
    }
