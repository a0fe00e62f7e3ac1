"""Other instruments beside ours: nvbench and Kernel Tuner."""

from __future__ import annotations

from typing import Any

import numpy as np

from .record import Record
from .words import Claims, percent, signed, span, whole, whole_percent


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """What the comparisons under benchmarks/ say, and what follows for times."""
    return {
        **_nvbench(record.benchmark("nvbench"), claims),
        "tuner": _tuner(record, claims),
        "machine": _machine(record.benchmark("machine")),
    }


def _nvbench(found: dict[str, Any], claims: Claims) -> dict[str, Any]:
    off = np.array([abs(c["ratio"] - 1) for c in found["cells"]])
    far = np.array([c["side"] > 1024 and c["cache_state"] == "flushed" for c in found["cells"]])
    claims.hold(
        "Far outside L2 and flushed both harnesses agree within 0.5 %.",
        float(off[far].max()) < 0.005,
        float(off[far].max()),
    )
    return {
        "nvbench_cells": str(len(off)),
        "nvbench_within": str(int((off <= 0.01).sum())),
        "nvbench_worst": percent(float(off.max()), 3),
        "nvbench_far": str(int(far.sum())),
        "nvbench_far_worst": percent(float(off[far].max())),
    }


def _tuner(record: Record, claims: Claims) -> dict[str, Any]:
    """Speed, repeatability and times of Kernel Tuner beside ours, in both of its modes."""
    modes = {
        "none": record.benchmark("kernel-tuner"),
        "device": record.benchmark("kernel-tuner-device"),
    }
    claims.hold(
        "Our times are shorter than Kernel Tuner's.",
        all(m["agreement"]["median"] < 0 for m in modes.values()),
    )
    claims.hold(
        "gpushmoo is faster than Kernel Tuner by default, slower than a script written by hand.",
        modes["none"]["ratio"]["median"] > 1 > modes["device"]["ratio"]["median"],
    )
    rows = []
    for words, m in zip(
        ("as it is by default, no verification", "script by hand, verified on the device"),
        modes.values(),
        strict=True,
    ):
        ours, theirs = (
            [p[w]["ms_per_cell"] for p in m["passes"]] for w in ("gpushmoo", "kernel_tuner")
        )
        rows.append(
            [
                words,
                *(f"{sum(t) / len(t):.1f}" for t in (ours, theirs)),
                _range(m["ratio"]),
                *(_pair(m["repeatability"][w]) for w in ("gpushmoo", "kernel_tuner")),
                signed(m["agreement"]["median"]),
            ]
        )
    asked = modes["none"]["facts"]["gpushmoo"][0]
    recorded = record.provenance[0]["params"]["measure"]["relative_half_width"]
    # The same cells at four times the bytes; a quarter of their time is about that of 4096².
    typical = (
        float(
            record.of("copy2d_coalesced", dtype="float", width=8192, cache_state="warm")[
                "median_s"
            ].median()
        )
        / 4
    )
    shorter = [-m["agreement"]["median"] for m in modes.values()]
    return {
        "rows": rows,
        "cells": whole(modes["none"]["passes"][0]["gpushmoo"]["cells"]),
        "size": modes["none"]["asked"]["size"],
        "target": whole_percent(asked["settings"]["measure"]["relative_half_width"]),
        "device_target": percent(
            modes["device"]["facts"]["gpushmoo"][0]["settings"]["measure"]["relative_half_width"], 1
        ),
        "recorded_target": percent(recorded, 1),
        "samples": [
            f"{m['facts']['gpushmoo'][0]['samples'] / p['cells']:.1f}"
            for m in modes.values()
            for p in [m["passes"][0]["gpushmoo"]]
        ],
        "their_samples": str(
            modes["none"]["facts"]["kernel_tuner"][0]["samples"]
            // modes["none"]["passes"][0]["kernel_tuner"]["cells"]
        ),
        "shorter": span((100 * s for s in shorter), " %"),
        "typical_us": f"{1e6 * typical:.0f}",
        "shorter_us": span(1e6 * typical * s / (1 - s) for s in shorter),
        # The first comparison kept no date; its commit is of this day.
        "day": modes["none"].get("written_at", "2026-11-21")[:10],
        "difference": _difference(modes),
    }


def _range(r: dict[str, float]) -> str:
    return f"{r['median']:.2f} ({r['least']:.2f} to {r['greatest']:.2f})"


def _pair(r: dict[str, float]) -> str:
    return f"{percent(r['median'])} and {percent(r['p95'])}"


def _difference(modes: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Constant and proportional part of their time less ours, of each mode that has kept it."""
    return [
        [
            {"none": "by default", "device": "script by hand"}[mode],
            f"{d['constant_us']:.2f}",
            signed(d["share"], 2),
            f"{d['short_us']:.2f}",
            f"{d['long_us']:.2f}",
        ]
        for mode, m in modes.items()
        if (d := m.get("difference")) is not None
    ]


def _machine(found: dict[str, Any]) -> dict[str, str]:
    """What experiments/gpu/measure_machine.py wrote: latency of a load, rates of memory."""
    l2 = [m["median"] for m in found["latency_cycles"] if not m["cold"]]
    memory = [m["median"] for m in found["latency_cycles"] if m["cold"]]
    rates = found["rate_gbs"]
    return {
        "l2": span(l2, digits=3),
        "memory": span(memory, digits=3),
        "read": f"{rates['read']['gbs']:.0f}",
        "write": f"{rates['write']['gbs']:.0f}",
    }
