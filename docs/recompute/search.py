"""What experiments/benchmarks/search_replay.py has found."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from gpushmoo.core.paths import ROOT

from .words import Claims, percent, whole_percent

RECORD = ROOT / "reports/reference/search/nvidia-h200.json"
GUIDED, TRANSFER, RACE, GRID = "guided", "guided, transfer", "race", "aligned grid"
PEER = "Kernel Tuner, "
ALL_2D, PERSISTENT = "2-D", "block_eq_partition"
# Part of the seeds that shall have a hit, and part of the groups in which that shall be so.
MOST_SEEDS = MOST_GROUPS = 0.95
# What was aimed at, of the cells and of the runs.
CELLS_MEDIAN, CELLS_P95, SAMPLES, WRONG, PERSISTENT_CELLS = 0.05, 0.10, 0.05, 0.02, 0.25
TRANSFER_FIRST, TRANSFER_WORSE = 5, 1.2

Told = Mapping[str, Any]


def values(claims: Claims) -> dict[str, Any]:
    """Numbers of the page on speed."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    together, families, groups = (found["ways"][n] for n in ("together", "families", "groups"))
    two_d, persistent = together[ALL_2D], families[PERSISTENT]
    guided = two_d[GUIDED]
    peers = {way: first(two_d, way) for way in two_d if way.startswith(PEER)}
    claims.hold(
        "A guided search has a hit after fewer cells than any strategy of Kernel Tuner.",
        all(guided["first"][0] < cells for cells in peers.values()),
        peers,
    )
    claims.hold("A race is hardly ever wrong.", two_d[RACE]["wrong"] <= 0.003, two_d[RACE])
    flat = [name for name in groups if name in of_two_axes(groups)]
    hit = [n for n in flat if groups[n][GUIDED]["within_5"] >= MOST_SEEDS]
    worse = sorted(groups, key=lambda n: -slowed(groups[n]))
    return {
        "seeds": found["seeds"],
        "other_seeds": found["other_seeds"],
        "flat_groups": len(flat),
        "other_groups": found["groups"] - len(flat),
        "families": [family_row(name, ways) for name, ways in families.items()],
        "peers": [peer_row(way, told) for way, told in two_d.items()],
        "peer_version": found["kernel_tuner"]["version"],
        "peer_seeds": found["kernel_tuner"]["seeds"],
        "peer_share": whole_percent(found["kernel_tuner"]["most_share"]),
        "goals": [
            goal(
                "groups in which 95 % of the seeds have a hit after a twentieth of the cells",
                len(hit) / len(flat),
                MOST_GROUPS,
                more=True,
            ),
            goal("cells when the search ends, median", guided["cells_share"][0], CELLS_MEDIAN),
            goal("the same, 95th percentile", guided["cells_share"][1], CELLS_P95),
            goal("samples, 95th percentile", guided["samples_share"][1], SAMPLES),
            goal("searches that are wrong", guided["wrong"], WRONG),
            goal(
                "`block_eq_partition`: cells, median",
                persistent[GUIDED]["cells_share"][0],
                PERSISTENT_CELLS,
            ),
            goal(
                "`block_eq_partition`: searches that are wrong", persistent[GUIDED]["wrong"], WRONG
            ),
        ],
        "missed": [
            f"`{n}` ({whole_percent(groups[n][GUIDED]['within_5'])})" for n in flat if n not in hit
        ],
        "wrong": [
            f"`{name}` ({percent(ways[GUIDED]['wrong'])})"
            for name, ways in sorted(groups.items(), key=lambda i: -i[1][GUIDED]["wrong"])
            if ways[GUIDED]["wrong"] > WRONG
        ],
        "promised": f"{guided['promised']:.3f}",
        "beaten": percent(guided["beaten"]),
        "race_samples": " / ".join(whole_percent(s) for s in two_d[RACE]["samples_share"]),
        "race_wrong": percent(two_d[RACE]["wrong"]) if two_d[RACE]["wrong"] else "none",
        "processor": " and ".join(f"{s:.2f} s" for s in guided["processor_s"]),
        "transfer_first": f"{first(two_d, TRANSFER):.0f}",
        "transfer_without": f"{guided['first'][0]:.0f}",
        "transfer_end": percent(two_d[TRANSFER]["cells_share"][0]),
        "transfer_wrong": percent(two_d[TRANSFER]["wrong"]),
        "transfer_worst": f"{slowed(groups[worse[0]]):.1f}",
        "transfer_worst_group": f"`{worse[0]}`",
        "transfer_worse": sum(slowed(groups[n]) > TRANSFER_WORSE for n in groups),
    }


def of_two_axes(groups: Mapping[str, Told]) -> list[str]:
    """Names of the groups of which there is an aligned grid."""
    return [name for name, ways in groups.items() if GRID in ways]


def first(ways: Told, way: str) -> float:
    """Cells until the first hit, in the median; infinite where half of the runs have none."""
    cells = ways[way]["first"][0]
    return math.inf if cells is None else float(cells)


def slowed(ways: Told) -> float:
    """How many times as many cells a search takes in the median with what is known elsewhere."""
    if TRANSFER not in ways:
        return 0.0
    return float(ways[TRANSFER]["cells"][0]) / float(ways[GUIDED]["cells"][0])


def family_row(name: str, ways: Told) -> str:
    """A line of the table of families, with the best of Kernel Tuner's strategies."""
    told = ways[GUIDED]
    peers = [way for way in ways if way.startswith(PEER)]
    best = min(peers, key=lambda way: first(ways, way), default=None)
    cells = [
        f"`{name}`",
        _cells(ways["random"]),
        _cells(ways[GRID]) if GRID in ways else "",
        f"{best.removeprefix(PEER)} {_cells(ways[best])}" if best else "",
        _cells(told),
        " / ".join(percent(s) for s in told["cells_share"]),
        " / ".join(percent(s) for s in told["samples_share"]),
        percent(told["wrong"]) if told["wrong"] else "0",
    ]
    return f"| {' | '.join(cells)} |"


def peer_row(way: str, told: Told) -> str:
    """A line of the table of ways: first hit, how often it came in time, cells in all, wrong."""
    cells = [
        way,
        _cells(told),
        whole_percent(told["within_5"]),
        " / ".join(percent(s) for s in told["cells_share"]),
        percent(told["wrong"]) if told["wrong"] else "0",
    ]
    return f"| {' | '.join(cells)} |"


def goal(what: str, reached: float, aimed: float, more: bool = False) -> str:
    """A line of the table of goals; `more` where more is better."""
    met = reached >= aimed if more else reached <= aimed
    sign = "at least" if more else "at most"
    return f"| {what} | {percent(reached)} | {sign} {percent(aimed)} | {'yes' if met else 'no'} |"


def _cells(told: Told) -> str:
    """``18 / 37``: median and 95th percentile of the cells until the first hit."""
    return " / ".join("–" if f is None else f"{f:.0f}" for f in told["first"])
