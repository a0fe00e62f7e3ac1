"""What the one model of each device says: why the fastest launches are not faster, how sure.

Where a device has none, the formula of persistent blocks (`model.partition`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from ..analysis.fastest import params_text
from ..core.display import joined, number, percent, seconds, significant
from ..model.form import PARAMETERS
from ..model.limits import GAIN, CountedCells, CountedLimit
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
INFERRED = "Every limit is inferred by the model: no hardware counter backs one."
NOT_COUNTED = CountedCells.of({})


def why_parts(
    devices: Sequence[Json], names: Namer, counted: Mapping[str, CountedCells]
) -> list[Json]:
    """For each device its sentences, and a row for each kernel and type; `sentences` alone where no
    model could be fitted. Without any device one part says what is lacking. `counted` is what
    hardware counters said, by the device's name.
    """
    if not devices:
        return [{"sentences": [NO_MODEL], "rows": [], "gaps": []}]
    return [_part(device, names, counted.get(device["device"], NOT_COUNTED)) for device in devices]


def _part(device: Json, names: Namer, counted: CountedCells) -> Json:
    gaps = [
        f"{joined([k for k, w in sorted(device['left_out'].items()) if w == why])}: "
        f"not modelled, as {why}."
        for why in sorted(set(device["left_out"].values()))
    ]
    if "why" in device:
        sentence = f"There is no model of {device['device']}: {device['why']}."
        return {"sentences": [sentence], "rows": [], "gaps": gaps}
    limits = [counted.of_limit(why["cell_key"], why["limit"]) for why in device["whys"]]
    rows = [
        _row(why, device["device"], names, limit)
        for why, limit in zip(device["whys"], limits, strict=True)
    ]
    return {"sentences": [backing(limits), _judged(device)], "rows": rows, "gaps": gaps}


def backing(limits: Sequence[CountedLimit | None]) -> str:
    """How many of the limits hardware counters of the same launches back."""
    told = [limit for limit in limits if limit is not None]
    if not told:
        return INFERRED
    backed = sum(limit.backed for limit in told)
    contradicted = "" if backed == len(told) else f", {len(told) - backed} are not (told by “not”)"
    inferred = len(limits) - len(told)
    rest = f"; the other {inferred} are inferred by the model" if inferred else ""
    return (
        f"Of {len(told)} limits {backed} are backed by hardware counters of the same launches on "
        f"such a device{contradicted}{rest}."
    )


def _row(why: Json, device: str, names: Namer, counted: CountedLimit | None) -> Json:
    return {
        "kernel": why["kernel"],
        "type": why["dtype"],
        "launch": f"{params_text(why['params'], sorted(why['params']))}, {why['variant']}",
        "size": names.size({**why, "device_name": device}),
        "measured": significant(why["measured_gbs"]),
        "predicted": significant(why["predicted_gbs"]),
        "limit": LIMIT_WORDS[why["limit"]][0],
        "counted": _counted(counted),
        "next": f"{LIMIT_WORDS[why['next']][0]} {percent(why['next_share'])}",
        "gain": _gain(why),
    }


def _counted(limit: CountedLimit | None) -> str:
    if limit is None:
        return "inferred"
    return limit.words if limit.backed else f"not: {limit.words}"


def _gain(why: Json) -> str:
    if why["factor"] is None:
        return f"not by this limit alone: then {LIMIT_WORDS[why['then']][0]} binds"
    return LIMIT_WORDS[why["limit"]][1].format(significant(why["factor"]))


def _judged(device: Json) -> str:
    """How far the model is off on cells that it was not fitted to, and of a kernel not seen."""
    kernels = "; ".join(
        f"{kernel} {percent(e['median'])}, {percent(e['p95'])}"
        for kernel, e in sorted(device["errors"].items())
    )
    others = device["bands"]["of_others"]
    unseen = (
        "no band is known for a kernel that it has not seen"
        if others is None
        else f"for a kernel that it has not seen the band is a factor of "
        f"{significant(math.exp(others))} either way"
    )
    return (
        f"The model of {device['device']} was fitted to {device['trained']} of {device['cells']} "
        f"cells. Of a kernel's others it misses half by more than the first figure and 5 % by more "
        f"than the second ({kernels}); {unseen}."
    )


def gain_words() -> str:
    """What the last column of the rows is a gain of."""
    return percent(GAIN - 1)


def parameter_tables(devices: Sequence[Json]) -> list[Json]:
    """Of each fitted device the parameters that are determined; the others in one sentence."""
    return [
        {
            "device": device["device"],
            "rows": [
                {
                    "words": p["words"],
                    "value": significant(p["value"]),
                    "unit": p["unit"],
                    "interval": f"{significant(p['low'])} to {significant(p['high'])}",
                }
                for p in _in_order(device)
                if p["determined"]
            ],
            "others": "; ".join(p["words"] for p in _in_order(device) if not p["determined"]),
        }
        for device in devices
        if "parameters" in device
    ]


def _in_order(device: Json) -> list[Json]:
    """The parameters of a device, those of one part of it together."""
    return [device["parameters"][name] for name in PARAMETERS if name in device["parameters"]]


# Parameters of the formula of persistent blocks, as the table names them, and how each is written.
_PARTITION = {
    "start_s": ("start", seconds),
    "tile_s": ("a tile", seconds),
    "bus_s": ("its part of the bus", seconds),
    "overlap": ("overlap", number),
}


def partition_rows(cells: pd.DataFrame, names: Namer) -> list[Json]:
    """A line for each series of these `cells` of persistent blocks; a failed fit shows its reason.

    A parameter stands there only where the points determine it.
    """
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
