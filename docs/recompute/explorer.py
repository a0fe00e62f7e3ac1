"""What experiments/benchmarks/explorer.py has measured."""

from __future__ import annotations

import json
from typing import Any

from gpushmoo.core.paths import ROOT

from .words import Claims, whole

RECORD = ROOT / "reports/reference/explorer/nvidia-h200.json"
# What is promised of the largest record, in milliseconds.
OPEN_MS, ANSWER_MS = 2000.0, 100.0
# Ends the names of times to when cross-sections and the table are drawn.
REST = ", to the last line"


def values(claims: Claims) -> dict[str, Any]:
    """Numbers of the page on the explorer."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    times = dict(found["milliseconds"])
    opened, loaded = times.pop("open"), times.pop("loaded")
    answers = {n: t for n, t in times.items() if not n.endswith(REST)}
    claims.hold("The record opens within two seconds.", opened["most"] < OPEN_MS, opened)
    over = {n: t["median"] for n, t in answers.items() if t["median"] >= ANSWER_MS}
    claims.hold("In the median every answer takes less than a tenth of a second.", not over, over)
    return {
        "cells": whole(found["cells"]),
        "megabytes": f"{found['page_bytes'] / 1e6:.1f} MB",
        "written": f"{found['written_s']:.0f} s",
        "browser": found["browser"],
        "tabs": found["repeats"],
        "cores": found["cores"],
        "load": f"{found['load_before']:.1f}",
        "opened": _text(opened),
        "loaded": _text(loaded),
        "rows": [f"| {n} | {_text(t)} | {_text(times[n + REST])} |" for n, t in answers.items()],
    }


def _text(time: dict[str, float]) -> str:
    return f"{time['median']:.0f} ms ({time['least']:.0f} to {time['most']:.0f})"
