"""Runs every kernel (`sanitized_cells.py`) under compute-sanitizer and sums up what it finds.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/sanitize.py --out FOLDER

Each of TOOLS runs at the same time as the others, on a GPU of its own where there are as many.
FOLDER gets the tools' logs, what the cells themselves said, and ``sanitize.json``. Ends with status
1 when something was found, or when a tool did not come to its end.

memcheck sees an access outside of all allocations, so buffers must be allocated at their own size:
`--padding` keeps them apart where the tool offers it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from gpushmoo.devices.cuda.backend import count_devices

HERE = Path(__file__).resolve().parent
# Options beside those of all tools; one that a release does not know is left out. A function of
# the runtime that fails is the business of the code that called it, and of its tests.
TOOLS: dict[str, tuple[str, ...]] = {
    "memcheck": ("--padding=512", "--report-api-errors=no"),
    "racecheck": (),
    "initcheck": (),
}
FOUND_STATUS = 9
# A process whose log has none did not come to its end.
SUMMARY = re.compile(
    r"ERROR SUMMARY: (\d+) errors?$|RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?",
    re.MULTILINE,
)


def main() -> None:
    """Run the tools, print a table, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--seconds", type=float, default=450.0, help="for all tools together")
    parser.add_argument("--kernels", nargs="*", default=[], help="kernel folders; all without")
    asked = parser.parse_args()
    asked.out = asked.out.resolve()
    asked.out.mkdir(parents=True, exist_ok=True)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = named.split(",") if named else [str(i) for i in range(max(1, count_devices()))]
    with ThreadPoolExecutor(len(asked.tools)) as threads:
        places = [gpus[i % len(gpus)] for i in range(len(asked.tools))]
        found = threads.map(partial(run_cells, asked), asked.tools, places)
        told = dict(zip(asked.tools, found, strict=True))
    (asked.out / "sanitize.json").write_text(json.dumps({"tools": told}, indent=1) + "\n")
    for tool, one in told.items():
        wrong = [w for c in one["cells"] for w in (*c["wrong"], c["lost"]) if w]
        right, builds = (sum(c[name] for c in one["cells"]) for name in ("right", "builds"))
        print(
            f"{tool}: {'clean' if one['clean'] else 'NOT clean'}, {one['seconds']} s, statuses "
            f"{one['statuses']}, {one['errors']} errors in {one['summaries']} summaries; "
            f"{builds} builds, {right} cells right, wrong: {wrong[:5]}"
        )
    sys.exit(not all(one["clean"] for one in told.values()))


def run_cells(asked: argparse.Namespace, tool: str, gpu: str) -> dict[str, Any]:
    """Run the kernels under `tool`; after a fault that takes the device, the builds behind it.

    Clean is a tool that came to its end and found nothing, where every result was right.
    """
    cells: list[dict[str, Any]] = []
    statuses, first, began = [], 0, time.monotonic()
    while True:
        out = asked.out / f"{tool}-cells-{first}.json"
        left_s = asked.seconds - (time.monotonic() - began)
        program = [str(HERE / "sanitized_cells.py"), "--out", str(out), "--first", str(first)]
        # A build that has begun may take a while longer.
        program += ["--seconds", str(left_s - 30), "--cache", str(asked.out / "cache")]
        program += ["--kernels", *asked.kernels]
        statuses.append(watched(asked.out, tool, gpu, program, left_s))
        if not out.is_file():
            break
        cells.append(json.loads(out.read_text()))
        first += cells[-1]["builds"]
        if cells[-1]["lost"] is None or not cells[-1]["left"] or left_s < 60:
            break
    logs = [path.read_text(errors="replace") for path in asked.out.glob(f"{tool}-*.log")]
    errors = [int(a or b) for text in logs for a, b in SUMMARY.findall(text)]
    ended = bool(errors and cells) and -signal.SIGKILL not in statuses
    wrong = any(c["wrong"] or c["lost"] for c in cells)
    return {
        "clean": ended and not sum(errors) and not wrong,
        "statuses": statuses,
        "seconds": round(time.monotonic() - began, 1),
        "errors": sum(errors),
        "summaries": len(errors),
        "cells": cells,
    }


def watched(out: Path, tool: str, gpu: str, program: list[str], seconds: float) -> int:
    """Run a Python program under `tool`; its exit status, or -9 when the time was up."""
    help_ = subprocess.run(["compute-sanitizer", "--help"], capture_output=True, text=True).stdout
    options = [o for o in TOOLS[tool] if o.split("=")[0].lstrip("-") in help_]
    own = ["--tool", tool, "--target-processes", "all", "--log-file", f"{out}/{tool}-%p.log"]
    command = ["compute-sanitizer", *own, "--error-exitcode", str(FOUND_STATUS), *options]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu, "PYTHONUNBUFFERED": "1"}
    with (out / f"{tool}-output.txt").open("a") as said:
        # A session of its own: at its end all that the tool started is ended.
        process = subprocess.Popen(
            [*command, sys.executable, *program],
            cwd=HERE.parents[1],
            env=env,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            return process.wait(timeout=max(1.0, seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return -signal.SIGKILL


if __name__ == "__main__":
    main()
