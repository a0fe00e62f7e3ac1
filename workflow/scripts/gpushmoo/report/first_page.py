"""The report's first page: which launch to use for each kernel, how fast, how sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from ..analysis.best import DEFAULT_BLOCKS, Advice
from ..analysis.run_quality import judge_dataset
from ..core.display import kind_words, percent, significant
from ..storage.dataset import matching
from ..storage.wholefile import read_json
from .tables import ARROWS, Json, axes_words, launch_values, size_words, thumbnail, ways

# A cost below this is no reason to choose another launch.
GOOD_ENOUGH = 0.02
_PLACES = {"cache": "cache", "memory": "memory", "between": "partly cache", "unknown": "—"}


def first_page(
    advice: Sequence[Advice],
    cells: pd.DataFrame,
    kernels: Mapping[str, Mapping[str, Any]],
    is_cpu: bool,
) -> Json:
    """The table of launches to use, a block of rows for each kernel, as display strings.

    `kernels` has the title of each, `is_cpu` says what the device is. Columns of which no row
    has a value are left out: the template asks ``columns`` for those that stand.
    """
    blocks: list[Json] = []
    several_devices = len({a.group["device_name"] for a in advice}) > 1
    several_kinds = len({a.group["launch_kind"] for a in advice}) > 1
    for a in advice:
        kernel = str(a.group["kernel"])
        name = kernel + (f", {kind_words(a.group['launch_kind'])}" if several_kinds else "")
        name += f", {a.group['device_name']}" if several_devices else ""
        if not blocks or blocks[-1]["name"] != name:
            title = kernels[kernel]["title"]
            blocks.append({"name": name, "title": title, "axes": axes_words(a.axes), "rows": []})
        block = blocks[-1]
        block.setdefault("thumbnail", thumbnail(a, matching(cells, a.group)))
        block["rows"].append(_row(a))
    used = {name for a in advice for name in a.defaults}
    return {
        "kernels": blocks,
        "defaults": [name for name in DEFAULT_BLOCKS if name in used],
        "has_ceiling": any(a.of_ceiling is not None for a in advice),
        "above_ceiling": above_ceiling(advice, is_cpu),
        "has_cached": any(a.in_cache is not None for a in advice),
        "has_places": any(a.place != "unknown" for a in advice),
    }


def above_ceiling(advice: Sequence[Advice], is_cpu: bool) -> str:
    """Why some launches have no share of the ceiling, as far as it is known; "" where none is so.

    Only the bus of a GPU's memory surely either loads or stores.
    """
    above = [a for a in advice if a.of_ceiling is not None and a.of_ceiling.share is None]
    if not above:
        return ""
    why = "a CPU's caches do" if is_cpu else "a cache does"
    sentence = (
        f"for {len(above)} of {len(advice)}: faster than loading and storing one after the other, "
        f"which is no bound there ({why} both at once)."
    )
    doubtful = 0 if is_cpu else sum(a.place == "memory" for a in above)
    if doubtful:
        sentence += f" In memory ({doubtful} of these) that explains nothing: measure again."
    return sentence


def verdict(
    report: str,
    facts: Path,
    dataset: Path,
    strict: bool,
    sweeps: Mapping[str, Mapping[str, Any]],
    out: Path,
    terminal: TextIO,
) -> None:
    """Tell the launches to use, and which cells ended in a fault; the latter also into `out`.

    Raises StrictError or FailedSweepError for a strict run or a failed sweep.
    """
    page = read_json(facts)["first_page"]
    print(*closing_lines(page, str(report)), sep="\n", file=terminal, flush=True)
    judge_dataset(dataset, out, strict, sweeps, terminal)


def closing_lines(page: Json, report: str) -> list[str]:
    """What a run ends with on a terminal: where the `report` is, and the page's launches."""
    rows = [
        (
            kernel["name"],
            row["dtype"],
            row["variant"],
            f"{row['use']} ({kernel['axes']})" if kernel["axes"] else row["use"],
            f"{row['bandwidth']} GB/s ± {row['half_width']}",
            f"{row['tied']} tied" + (": no difference shown" if row["undecided"] else ""),
        )
        for kernel in page["kernels"]
        for row in kernel["rows"]
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head = f"gpushmoo: the report is {report}" + ("; the launches to use:" if rows else ".")
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return [head, *(f"  {line}" for line in lines)]


def _row(a: Advice) -> Json:
    cell = a.cell

    def cost(share: float | None) -> Json:
        shown = cost_cell(share)
        # What cannot be told from the fastest is no worse.
        return {**shown, "bad": shown["bad"] and not a.undecided}

    half = (cell["bandwidth_high_gbs"] - cell["bandwidth_low_gbs"]) / 2 / cell["bandwidth_gbs"]
    return {
        "dtype": a.group["dtype"],
        "use": launch_values(cell, a.axes),
        "undecided": a.undecided,
        "edge": " ".join(
            f"{axis.removeprefix('block_')}\u00a0{ARROWS[way]}"
            for axis, way in ways(a.edge)
            if not a.undecided
        ),
        "variant": a.group["variant"],
        "size": size_words(int(cell["height"]), int(cell["width"])),
        "place": _PLACES[a.place],
        "bandwidth": significant(cell["bandwidth_gbs"]),
        "half_width": percent(half),
        "share": "—" if a.of_ceiling is None else a.of_ceiling.text,
        "tied": f"{a.tied} of {a.candidates}",
        "defaults": {name: cost(a.defaults.get(name)) for name in DEFAULT_BLOCKS},
        "worst": cost(a.worst if a.candidates > 1 else None),
        "in_cache": _in_cache(a),
    }


def _in_cache(a: Advice) -> Json:
    if a.in_cache is None:
        return {**cost_cell(None), "instead": ""}
    cell = cost_cell(a.in_cache.cost)
    return {**cell, "instead": launch_values(a.in_cache.best, a.axes) if cell["bad"] else ""}


def cost_cell(cost: float | None) -> Json:
    """``{"text": "+6.8 %", "bad": True}``; from the double time on as ``2.3 ×``.

    What is less than 0.05 % either way is ``0 %``, what is not known a dash.
    """
    if cost is None:
        return {"text": "—", "bad": False}
    if cost >= 1:
        return {"text": f"{significant(1 + cost, 2)} ×", "bad": True}
    text = "0 %" if abs(cost) < 5e-4 else f"{'+' if cost > 0 else '−'}{percent(abs(cost))}"
    return {"text": text, "bad": cost >= GOOD_ENOUGH}
