"""The report's part on each device's model: what limits the fastest launches, how sure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from ..analysis.fastest import params_text
from ..core.display import joined, number, percent, seconds, significant
from ..core.space import in_order
from ..model.form import PARAMETERS
from ..model.limits import CountedCells, CountedLimit
from ..model.partition import fit_partitions
from .tables import Json, Namer

# How a limit reads, and what would gain where it binds, `{}` times.
LIMIT_WORDS: Mapping[str, tuple[str, str]] = {
    "start": ("start of the launch", "a start {} times as fast, or more work in a launch"),
    "dispatch": ("dispatch of blocks", "dispatch {} times as fast, or blocks with more work each"),
    "service": ("the pipelines", "pipelines {} times as fast, or fewer instructions and lines"),
    "waiting": ("waiting for loads", "latencies {} times as short, or more loads out at once"),
    "L2": ("L2", "an L2 {} times as fast"),
    "DRAM": ("DRAM", "a DRAM {} times as fast"),
}
NO_MODEL = (
    "There is no model of this device, so that nothing here says which limit binds a launch: its "
    "runtime tells neither the kernels' machine code nor how many blocks a multiprocessor holds "
    "(its occupancy)."
)


def why_parts(
    devices: Sequence[Json], names: Namer, counted: Mapping[str, CountedCells]
) -> list[Json]:
    """For each device its sentences and rows; `counted` has hardware counters by device."""
    if not devices:
        return [{"sentences": [NO_MODEL], "rows": [], "gaps": []}]
    return [_part(device, names, counted.get(device["device"])) for device in devices]


def _part(device: Json, names: Namer, counted: CountedCells | None) -> Json:
    left_out: dict[str, list[str]] = {}
    for kernel, why in sorted(device["left_out"].items()):
        left_out.setdefault(why, []).append(kernel)
    gaps = [f"{joined(k)}: not modelled, as {why}." for why, k in sorted(left_out.items())]
    if "why" in device:
        sentence = f"There is no model of {device['device']}: {device['why']}."
        return {"sentences": [sentence], "rows": [], "gaps": gaps}
    whys = device["whys"]
    limits = [
        None if counted is None else counted.of_limit(why["cell_key"], why["limit"]) for why in whys
    ]
    rows = [
        _row(why, device["device"], names, limit) for why, limit in zip(whys, limits, strict=True)
    ]
    return {"sentences": [_backing(limits), _judged(device)], "rows": rows, "gaps": gaps}


def _backing(limits: Sequence[CountedLimit | None]) -> str:
    """How many of the limits hardware counters of the same launches back."""
    counted = [limit for limit in limits if limit is not None]
    if not counted:
        return "Every limit is inferred by the model: no hardware counter backs one."
    backed = sum(limit.backed for limit in counted)
    against, inferred = len(counted) - backed, len(limits) - len(counted)
    return (
        f"Of {len(counted)} limits {backed} are backed by hardware counters of the same launches "
        "on such a device"
        + (f", {against} are not (told by “not”)" if against else "")
        + (f"; the other {inferred} are inferred by the model." if inferred else ".")
    )


def _row(why: Json, device: str, names: Namer, counted: CountedLimit | None) -> Json:
    limit, lever = LIMIT_WORDS[why["limit"]]
    if why["factor"] is None:
        gain = f"not by this limit alone: then {LIMIT_WORDS[why['then']][0]} binds"
    else:
        gain = lever.format(significant(why["factor"]))
    backing = "inferred"
    if counted is not None:
        backing = counted.words if counted.backed else f"not: {counted.words}"
    return {
        "kernel": why["kernel"],
        "type": why["dtype"],
        "launch": f"{params_text(why['params'], in_order(why['params']))}, {why['variant']}",
        "size": names.size({**why, "device_name": device}),
        "measured": significant(why["measured_gbs"]),
        "predicted": significant(why["predicted_gbs"]),
        "limit": limit,
        "counted": backing,
        "next": f"{LIMIT_WORDS[why['next']][0]} {percent(why['next_share'])}",
        "gain": gain,
    }


def _judged(device: Json) -> str:
    """How far the model is off on cells that it was not fitted to, and of a kernel not seen."""
    kernels = "; ".join(
        f"{kernel} {percent(e['median'])}, {percent(e['p95'])}"
        for kernel, e in sorted(device["errors"].items())
    )
    others = device["bands"]["of_others"]
    if others is None:
        unseen = "no band is known for a kernel that it has not seen"
    else:
        factor = significant(math.exp(others))
        unseen = f"for a kernel that it has not seen the band is a factor of {factor} either way"
    return (
        f"The model of {device['device']} was fitted to {device['trained']} of {device['cells']} "
        f"cells. Of a kernel's others it misses half by more than the first figure and 5 % by more "
        f"than the second ({kernels}); {unseen}."
    )


def parameter_tables(devices: Sequence[Json]) -> list[Json]:
    """Of each fitted device the parameters that are determined; the others in one sentence."""
    tables = []
    for device in devices:
        if "parameters" not in device:
            continue
        # Those of one part of the device together.
        found = [device["parameters"].get(name) for name in PARAMETERS]
        rows = [
            {
                "words": p["words"],
                "value": significant(p["value"]),
                "unit": p["unit"],
                "interval": f"{significant(p['low'])} to {significant(p['high'])}",
            }
            for p in found
            if p and p["determined"]
        ]
        others = "; ".join(p["words"] for p in found if p and not p["determined"])
        tables.append({"device": device["device"], "rows": rows, "others": others})
    return tables


# Parameters of the formula of persistent blocks, as the table names them, and how each is written.
_PARTITION = {
    "start_s": ("start", seconds),
    "tile_s": ("a tile", seconds),
    "bus_s": ("its part of the bus", seconds),
    "overlap": ("overlap", number),
}


def partition_rows(cells: pd.DataFrame, names: Namer) -> list[Json]:
    """A line for each series of persistent blocks, with the parameters that are determined."""
    rows = []
    for fit, _ in fit_partitions(cells):
        row = {"series": names.series(fit), "why": fit.get("why")}
        if "why" not in fit:
            determined = [
                f"{words} {show(fit['values'][name])}"
                for name, (words, show) in _PARTITION.items()
                if fit["half_widths"][name] < fit["values"][name]
            ]
            row |= {
                "parameters": ", ".join(determined) or "none",
                "points": f"{fit['fitted']} + {fit['left_out']}",
                "median": percent(fit["errors"]["median"]),
                "worst": f"{percent(fit['errors']['worst'])} at {fit['worst_blocks']}",
            }
        rows.append(row)
    return rows
