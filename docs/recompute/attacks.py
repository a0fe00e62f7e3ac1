"""What the chaos runs, the mutations of shards and the soak found."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from gpushmoo.core.paths import ROOT

from .words import Claims, whole

ATTACKS = ROOT / "reports/reference/attacks"


def values(claims: Claims) -> dict[str, Any]:
    """Numbers of the section on attacks, and its tables."""
    return {
        "chaos": _chaos(_read("chaos"), claims),
        "mutations": _mutations(_read("mutations"), claims),
        "soak": _soak(_read("soak"), claims),
    }


def _read(kind: str) -> list[dict[str, Any]]:
    return [json.loads(p.read_text(encoding="utf-8")) for p in _files(kind)]


def _files(kind: str) -> list[Path]:
    return sorted(ATTACKS.glob(f"{kind}-*.json"))


def _chaos(runs: list[dict[str, Any]], claims: Claims) -> dict[str, Any]:
    strikes: Counter[str] = Counter()
    for run in runs:
        for name, count in run["strikes_by_kind"].items():
            strikes[name.split(":")[0]] += count
    starts = max(int(n) for run in runs for n in run["starts_after_the_last_strike"])
    broken = Counter[str]()
    for run in runs:
        broken.update(run["violations_by_kind"])
    claims.hold("Drawn strikes break no promise.", not broken, dict(broken))
    claims.hold("Two starts are enough.", starts <= 2, starts)
    claims.hold("There were two hundred strikes.", strikes.total() >= 200, strikes.total())
    return {
        "strikes": whole(strikes.total()),
        "rounds": whole(sum(run["rounds"] for run in runs)),
        "runs": len(runs),
        "seeds": " and ".join(run["seed"] for run in runs),
        "minutes": f"{sum(run['seconds'] for run in runs) / 60:.0f} min",
        "rows": [f"| {name} | {count} |" for name, count in strikes.most_common()],
        "starts": starts,
        "early": sum(sum(run["remarks"].values()) for run in runs),
        "blamed": sum(run["innocent_cells_with_a_fault_status"] for run in runs),
    }


def _mutations(runs: list[dict[str, Any]], claims: Claims) -> dict[str, Any]:
    classes: Counter[str] = Counter()
    for run in runs:
        classes.update(run["mutations_by_class"])
    for name in ("accepted", "raw_exceptions", "unnamed"):
        found = sum(run[name] for run in runs)
        claims.hold(f"No mutation of a shard is {name}.", found == 0, found)
    untellable = runs[0]["untellable"]
    return {
        "count": whole(classes.total()),
        "bytes": whole(classes["bytes"]),
        "other": whole(classes["other software"]),
        "summed": whole(classes["with a sum that holds"]),
        "seeds": " and ".join(run["seed"] for run in runs),
        "untellable": [f"| `{name}` | {why} |" for name, why in untellable.items()],
    }


def _soak(runs: list[dict[str, Any]], claims: Claims) -> dict[str, Any]:
    [run] = runs
    claims.hold("Memory, descriptors and logs are bounded.", not run["broken"], run["broken"])
    claims.hold("A hundred thousand cells.", run["rows"] >= 100_000, run["rows"])
    job, worker = run["job"], run["worker"]
    faults = run["faults_from_outside"]
    return {
        "cells": whole(run["rows"]),
        "minutes": f"{run['seconds'] / 60:.0f} min",
        "faults": sum(faults.values()),
        "kinds": ", ".join(f"{n} {name}" for name, n in sorted(faults.items())),
        "planned": run["cells_planned_to_fault"],
        "innocent": run["innocent_cells_with_a_fault_status"],
        "memory": f"{job['rss_mb_at_most']:.0f} MB and {worker['rss_mb_at_most']:.0f} MB",
        "per_cell": f"{job['bytes_per_cell'] / 1e3:.1f} kB",
        "descriptors": f"{job['descriptors_at_most']} and {worker['descriptors_at_most']}",
        "log": f"{run['log_bytes_at_most'] / 1e3:.0f} kB",
    }
