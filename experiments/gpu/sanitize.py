"""Runs kernels, or the device tests, under compute-sanitizer and sums up what it finds.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/sanitize.py --out FOLDER          # every kernel: sanitized_cells.py
    python experiments/gpu/sanitize.py --out FOLDER --suite  # the tests marked `gpu`

Each of TOOLS runs at the same time as the others, on a GPU of its own where there are as many.
FOLDER gets the tools' logs, what the cells or tests themselves said, and ``sanitize.json``. Ends
with status 1 when something was found that is not expected, or when a tool did not come to its end.

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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from gpushmoo.devices.cuda.visible import visible_devices
from sanitizer_log import Log, read_logs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Options beside those of all tools; one that a release does not know is left out. A function of
# the runtime that fails is the business of the code that called it, and of its tests.
TOOLS: dict[str, tuple[str, ...]] = {
    "memcheck": ("--padding=512", "--report-api-errors=no"),
    "racecheck": (),
    "initcheck": (),
}
FOUND_STATUS = 9

# Tests that do on purpose what a tool reports, or that a tool makes fail.
LEFT_OUT = {
    "test_isolation.py": "kernels that fault or never end, in processes with limits of time",
    "test_images.py::test_an_image_that_does_not_fit_the_memory_is_said": "fills the memory",
    "test_timeline.py::test_every_copy_and_kernel_has_its_time": "times of the device",
    "test_timeline.py::test_pinned_copies_wait_for_one_engine": "times of the device",
    "test_devices.py::test_sample_is_the_time_of_one_launch": "times of the device",
}
# Kernels of the tests that are wrong on purpose, where their tests are run all the same.
WRONG_ON_PURPOSE = frozenset({"copy_illegal", "copy_endless"})
# How a file of tests names a device: the fixtures, or the mark.
_ON_DEVICE = re.compile(r"\bdevice: Device\b|\bcuda_device\b|mark\.gpu\b|\bBACKENDS\b")


def main() -> None:
    """Run the tools, print a table, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--suite", action="store_true", help="the device tests, not the kernels")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--seconds", type=float, default=450.0, help="for all tools together")
    parser.add_argument("--workers", type=int, default=4, help="of the tests, under each tool")
    parser.add_argument("--kernels", nargs="*", default=[], help="kernel folders; all without")
    asked = parser.parse_args()
    asked.out = asked.out.resolve()
    asked.out.mkdir(parents=True, exist_ok=True)
    run = partial(run_suite if asked.suite else run_cells, asked)
    gpus = visible_gpus()
    with ThreadPoolExecutor(len(asked.tools)) as threads:
        places = [gpus[i % len(gpus)] for i in range(len(asked.tools))]
        told = dict(zip(asked.tools, threads.map(run, asked.tools, places), strict=True))
    left_out = LEFT_OUT if asked.suite else {}
    result = {"mode": "suite" if asked.suite else "cells", "left_out": left_out, "tools": told}
    (asked.out / "sanitize.json").write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(line for tool, one in told.items() for line in lines_of(tool, one)))
    sys.exit(0 if all(is_clean(one) for one in told.values()) else 1)


def visible_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES may name, one GPU each; at least one, tried whatever it is."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(max(1, visible_devices()))]


def sanitizer(tool: str, log: Path, known: str) -> list[str]:
    """The command line before the program's; `known` is the tool's own help."""
    options = [o for o in TOOLS[tool] if o.split("=")[0].lstrip("-") in known]
    own = ["--tool", tool, "--target-processes", "all", "--log-file", str(log)]
    return ["compute-sanitizer", *own, "--error-exitcode", str(FOUND_STATUS), *options]


def run_cells(asked: argparse.Namespace, tool: str, gpu: str) -> dict[str, Any]:
    """Run the kernels under `tool`; after a fault that takes the device, the builds behind it."""
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
    return {**_told(asked.out, tool, statuses, began), "cells": cells}


def run_suite(asked: argparse.Namespace, tool: str, gpu: str) -> dict[str, Any]:
    """Run the device tests under `tool`."""
    began, tests = time.monotonic(), asked.out / f"{tool}-tests.xml"
    left_out = [f"--deselect=tests/unit/{name}" for name in LEFT_OUT]
    program = ["-m", "pytest", "-q", "-m", "gpu", "-n", str(asked.workers), "--dist", "loadfile"]
    program += [f"--junitxml={tests}", *left_out, *gpu_files()]
    status = watched(asked.out, tool, gpu, program, asked.seconds)
    failed, count = test_failures(tests.read_text() if tests.is_file() else "<none/>")
    return {**_told(asked.out, tool, [status], began), "tests": count, "failed_tests": failed}


def watched(out: Path, tool: str, gpu: str, program: Sequence[str], seconds: float) -> int:
    """Run a Python program under `tool`; its exit status, or -9 when the time was up."""
    shown = subprocess.run(["compute-sanitizer", "--help"], capture_output=True, text=True)
    command = [*sanitizer(tool, out / f"{tool}-%p.log", shown.stdout), sys.executable, *program]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu, "PYTHONUNBUFFERED": "1"}
    with (out / f"{tool}-output.txt").open("a") as said:
        # A session of its own: at its end all that the tool started is ended.
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=said, stderr=said, start_new_session=True
        )
        try:
            return process.wait(timeout=max(1.0, seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return -signal.SIGKILL


def _told(out: Path, tool: str, statuses: list[int], began: float) -> dict[str, Any]:
    logs = sorted(out.glob(f"{tool}-*.log"))
    log = read_logs(path.read_text(errors="replace") for path in logs)
    seconds = round(time.monotonic() - began, 1)
    return {"statuses": statuses, "seconds": seconds, **split(log)}


def split(log: Log) -> dict[str, Any]:
    """The log as JSON values, its findings parted into expected ones and others."""
    told = log.to_json()
    findings = told.pop("findings")
    for name, expected in (("expected", True), ("findings", False)):
        told[name] = [f for f in findings if (f["kernel"] in WRONG_ON_PURPOSE) is expected]
    return told


def is_clean(one: dict[str, Any]) -> bool:
    """Whether a tool came to its end, found nothing unexpected, and every result was right."""
    cells = one.get("cells", [])
    ended = one["summaries"] > 0 and -signal.SIGKILL not in one["statuses"]
    wrong = any(c["wrong"] or c["lost"] for c in cells) or bool(one.get("failed_tests"))
    nothing_ran = not cells and not one.get("tests")
    return ended and not (one["findings"] or wrong or nothing_ran)


def lines_of(tool: str, one: dict[str, Any]) -> list[str]:
    """What to read on the terminal."""
    ran = f"{one.get('tests', 0)} tests, failed: {one.get('failed_tests')}"
    if "cells" in one:
        cells = one["cells"]
        counts = {n: sum(c[n] for c in cells) for n in ("right", "builds")}
        wrong = [w for c in cells for w in (*c["wrong"], *([c["lost"]] if c["lost"] else []))]
        left = cells[-1]["left"] if cells else "all"
        ran = f"{counts['builds']} builds, {counts['right']} cells right, wrong: {wrong[:5]}"
        ran += f", builds left: {left}"
    head = f"{tool}: {'clean' if is_clean(one) else 'NOT clean'}, {one['seconds']} s, statuses "
    head += f"{one['statuses']}, {one['errors']} errors in {one['summaries']} summaries; {ran}"
    found = [f"  {f['count']} x {f['what']} in {f['kernel']}" for f in one["findings"][:20]]
    return [head, *found, *(f"  note: {note}" for note in one["notes"][:5])]


def gpu_files() -> list[str]:
    """The files of tests/unit that have tests on a device, relative to the root."""
    files = sorted((ROOT / "tests/unit").glob("test_*.py"))
    return [str(f.relative_to(ROOT)) for f in files if _ON_DEVICE.search(f.read_text())]


def test_failures(junit: str) -> tuple[list[str], int]:
    """Names of the tests that failed in pytest's XML, and how many ran."""
    cases = [c for c in ElementTree.fromstring(junit).iter("testcase") if c.find("skipped") is None]
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    return [f"{c.get('classname')}::{c.get('name')}" for c in failed], len(cases)


if __name__ == "__main__":
    main()
