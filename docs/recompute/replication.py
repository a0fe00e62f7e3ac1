"""Does the record's word hold in another run, on another host, and what changed in it?"""

from __future__ import annotations

import re
from typing import Any

from gpushmoo.analysis.steadiness import LONG_S, Steadiness, steadiness

from .record import Record
from .words import Claims, joined, percent, signed, whole, whole_percent

# What two honest runs of equal width reach, rounded away from it: at most, at least, at least.
DISJOINT, HOLDING, WINNER = 0.02, 0.80, 0.97
# How much longer a sweep may take than before repeats.
SLOWER = 1.3
# A launch that lasts so long is sampled alone (gpushmoo.measuring.rounds).


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """Tables and sentences on other runs, other hosts, changed winners and steady devices."""
    return {
        **_replicated(record.benchmark("replication"), claims),
        "winners": _winners(record, claims),
        "hosts": _other_host(record.benchmark("records"), claims),
        "steady": _steady(record, claims),
    }


def _replicated(found: dict[str, Any], claims: Claims) -> dict[str, Any]:
    """Pairs of runs: how often their intervals and winners agree."""
    h200, more, cpu = found["h200"], found["h200_more_kernels"]["now"], found["cpu"]
    busy = found["cpu_busy"]
    pairs = (
        ("H200, before", h200["before"]),
        ("H200, now", h200["now"]),
        ("H200, more kernels, fewer samples", more),
        ("CPU, before", cpu["before"]),
        ("CPU, now", cpu["now"]),
        ("CPU, busy, before", busy["before"]),
        ("CPU, busy, now", busy["now"]),
    )
    longer = sum(h200["now"]["seconds"]) / sum(h200["before"]["seconds"])
    longer_cpu = sum(cpu["now"]["seconds"]) / sum(cpu["before"]["seconds"])
    held = (("H200", h200["now"]), ("CPU", cpu["now"]), ("busy CPU", busy["now"]))
    for name, now in held:
        claims.hold(
            f"Two runs agree as well as asked on the {name}.",
            now["disjoint"] <= DISJOINT
            and now["holding"] >= HOLDING
            and now["winner_tied"] >= WINNER,
            now,
        )
    ratios = (longer, longer_cpu)
    claims.hold("The repeats cost less than asked.", max(ratios) <= SLOWER, ratios)
    looks = 2 * more["groups"]
    return {
        "table": [_pair(words, pair) for words, pair in pairs],
        "goal": [
            f"at most {whole_percent(DISJOINT)}",
            f"at least {whole_percent(HOLDING)}",
            f"at least {whole_percent(WINNER)}",
        ],
        "longer": f"{longer:.2f}",
        "longer_cpu": f"{longer_cpu:.2f}",
        "longer_goal": f"{SLOWER}",
        "wider": f"{h200['now']['half_width_median'] / h200['before']['half_width_median']:.1f}",
        "more_held": f"{more['winner_tied'] * looks:.0f} of {looks}",
        "mixed": {
            "h200": whole_percent(h200["before"]["groups_of_mixed_launch_counts"]),
            "cpu": whole_percent(cpu["before"]["groups_of_mixed_launch_counts"]),
        },
        "day": found["measured"],
    }


def _pair(words: str, pair: dict[str, Any]) -> list[str]:
    return [
        words,
        whole(pair["cells"]),
        percent(pair["disjoint"]),
        percent(pair["holding"]),
        f"{percent(pair['winner_tied'], 3)} of {2 * pair['groups']}",
        f"{pair['tied_median']:.0f} ({percent(pair['tied_share'])})",
        percent(pair["half_width_median"]),
        percent(pair["difference_median"]),
        joined(f"{s:.0f}" for s in pair["seconds"]) if "seconds" in pair else "",
    ]


def _winners(record: Record, claims: Claims) -> dict[str, Any]:
    """Which cells won in the record before and win no longer; held against the record's best."""
    found = record.benchmark("winners")
    changed = found["changed"]
    claims.hold(
        "The winners that are told are the fastest cells of the record.",
        all(_is_fastest(record, c) for c in changed),
        [c["now"] for c in changed if not _is_fastest(record, c)],
    )
    claims.hold(
        "Each group has its winner in today's tied set, or is in the table.",
        found["old_winner_in_new_tied_set"] + len(changed) == found["groups"],
    )
    return {
        "groups": str(found["groups"]),
        "held": str(found["old_winner_in_new_tied_set"]),
        "same": str(found["same_cell"]),
        "count": str(len(changed)),
        "mixed": str(found["mixed_before"]),
        "changed_mixed": str(sum(c["mixed_before"] for c in changed)),
        "slower": percent(found["old_winner_slower_median"], 1),
        "slower_p95": percent(found["old_winner_slower_p95"]),
        "tied": f"{found['tied_median_before']:.0f} to {found['tied_median_now']:.0f}",
        "share": f"{whole_percent(found['tied_share_before'])} to "
        f"{whole_percent(found['tied_share_now'])}",
        "table": [
            [
                f"`{c['kernel']}`, {c['dtype']}, {c['variant']}",
                str(c["width"]) if c["height"] == 1 else f"{c['width']}²",
                c["cache_state"],
                _told(_parameters(c["before"])),
                _told(_parameters(c["now"])),
                percent(c["slower"]),
                f"{c['tied_before']}, {c['tied_now']}",
                "yes" if c["mixed_before"] else "no",
            ]
            for c in changed
        ],
    }


def _is_fastest(record: Record, changed: dict[str, Any]) -> bool:
    names = ("dtype", "variant", "height", "width", "cache_state")
    tied = record.tied(changed["kernel"], **{n: changed[n] for n in names})
    told = _parameters(changed["now"])
    same = all(int(tied.iloc[0][name]) == value for name, value in told.items())
    return same and len(tied) == changed["tied_now"]


def _parameters(told: str) -> dict[str, int]:
    """The launch parameters of ``block_x=4, block_y=60`` by name, in the order of their names."""
    return {name: int(value) for name, value in sorted(re.findall(r"(\w+)=(\d+)", told))}


def _told(parameters: dict[str, int]) -> str:
    if parameters.keys() == {"block_x", "block_y"}:
        return f"{parameters['block_x']} × {parameters['block_y']}"
    return ", ".join(f"{name} {value}" for name, value in parameters.items())


def _other_host(found: dict[str, Any], claims: Claims) -> dict[str, Any]:
    """The record before, of other hosts and GPUs, against this one."""
    elsewhere, there = (
        found["short_flushed"][k] for k in ("earlier_program_elsewhere", "this_program_there")
    )
    claims.hold(
        "What the earlier program reads on another host, this one reads there, too.",
        abs(there["longer_median"]) < 0.2 * abs(elsewhere["longer_median"]),
        (elsewhere, there),
    )
    return {
        "cells": whole(found["all"]["cells"]),
        "outside": whole_percent(1 - found["all"]["holding"]),
        "rows": [
            [
                name,
                whole(c["cells"]),
                percent(c["difference_median"]),
                percent(c["difference_p95"]),
                signed(c["longer_median"]),
                percent(c["holding"]),
            ]
            for name, c in found["classes"].items()
        ],
        "elsewhere": f"{percent(elsewhere['longer_median'])} ({elsewhere['longer_us']:.1f} µs "
        "a launch)",
        "there": percent(abs(there["longer_median"])),
    }


def _steady(record: Record, claims: Claims) -> dict[str, Any]:
    """By how much the runtime's own copies changed in the recording, long ones and short ones."""
    twice = [p for p in record.provenance if p["params"]["measure"]["repeats"] > 1]
    found = steadiness(twice)
    claims.hold("The devices were steady while the record was made.", found.steady, found)
    devices: dict[str, set[str]] = {}
    for p in twice:
        shard = str({k: v for k, v in p["params"].items() if k != "repeat"})
        devices.setdefault(shard, set()).add(p["device"]["uuid"])
    short = steadiness([p | {"controls": _short(p["controls"])} for p in twice])
    return {
        "long": _changes(found),
        "short": _changes(short),
        "shards": str(len(devices)),
        "moved": str(sum(len(d) > 1 for d in devices.values())),
        "once": joined(f"`{k}`" for k in steadiness(record.provenance).once),
    }


def _short(controls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [c for c in controls if len(c["seconds"]) and min(c["seconds"]) < LONG_S]


def _changes(found: Steadiness) -> dict[str, str]:
    names = {"between": found.between, "within": found.within}
    return {"controls": str(found.controls)} | {
        name: "unknown" if pair is None else f"{percent(pair[0])} (at most {percent(pair[1])})"
        for name, pair in names.items()
    }
