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
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gpushmoo.devices.cuda.backend import count_devices

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

_LINE = re.compile(r"^=========(?P<indent>\s*)(?P<text>.*?)\s*$")
_SUMMARY = re.compile(
    r"ERROR SUMMARY: (\d+) errors?$|RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?"
)
# What is said about the run and not about a kernel.
_NOTES = re.compile(
    r"Target application|Error: |Error process|.*(not printed|were not displayed)|LEAK SUMMARY"
)
_RACE = re.compile(r"(Read|Write|Atomic) access at")
# ``at copy_exact+0x90``, older releases ``at 0x90 in copy_exact``; a source line may follow.
_KERNEL = re.compile(
    r"\bat (?:0x[0-9a-f]+ in )?(?P<kernel>[A-Za-z_][\w:<>,&* ]*?)(?:\(.*\))?(?:\+0x|$| in )"
)


@dataclass
class Finding:
    """Reports of one kind in one kernel; `kernel` is empty where the report names none.

    `example` is the first of them without the host's call stack.
    """

    what: str
    kernel: str
    count: int
    example: str


@dataclass
class Log:
    """All findings of the processes that one run started, most frequent first.

    `errors` is the sum of the tool's own summaries and `summaries` their number: a process without
    one did not come to its end. `notes` are lines about the run itself.
    """

    findings: list[Finding] = field(default_factory=list)
    errors: int = 0
    summaries: int = 0
    notes: list[str] = field(default_factory=list)


def read_logs(texts: Iterable[str]) -> Log:
    """What the logs, one a process, say together."""
    log, found = Log(), dict[tuple[str, str], Finding]()
    for text in texts:
        for head, *rest in _reports(text):
            summary = _SUMMARY.match(head)
            if summary is not None:
                log.summaries += 1
                log.errors += int(summary[1] or summary[2])
            elif _NOTES.match(head) and "Race reported" not in head:
                log.notes.append(head)
            elif head != "COMPUTE-SANITIZER":
                _count(found, head, rest)
    log.findings = sorted(found.values(), key=lambda f: (-f.count, f.what, f.kernel))
    return log


def _reports(text: str) -> Iterator[list[str]]:
    """The lines of each report; lines of the program itself are left out."""
    report: list[str] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or not match["text"]:
            continue
        if match["indent"] == " " and report:
            yield report
            report = []
        report.append(match["text"])
    if report:
        yield report


def _count(found: dict[tuple[str, str], Finding], head: str, rest: list[str]) -> None:
    told = [line for line in rest if "Host Frame" not in line and "host backtrace" not in line]
    lines = [head, *told]
    kernel = next((m["kernel"] for line in lines if (m := _KERNEL.search(line))), "")
    what = head
    if "Race reported" in head:
        what = "race of " + " and ".join(_RACE.findall(" ".join(lines)))
    one = found.setdefault((what, kernel), Finding(what, kernel, 0, "\n".join(lines)))
    one.count += 1


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
    run = partial(run_cells, asked)
    gpus = visible_gpus()
    with ThreadPoolExecutor(len(asked.tools)) as threads:
        places = [gpus[i % len(gpus)] for i in range(len(asked.tools))]
        told = dict(zip(asked.tools, threads.map(run, asked.tools, places), strict=True))
    (asked.out / "sanitize.json").write_text(json.dumps({"tools": told}, indent=1) + "\n")
    print("\n".join(line for tool, one in told.items() for line in lines_of(tool, one)))
    sys.exit(0 if all(is_clean(one) for one in told.values()) else 1)


def visible_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES may name, one GPU each; at least one, tried whatever it is."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(max(1, count_devices()))]


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
    return {"statuses": statuses, "seconds": seconds, **asdict(log)}


def is_clean(one: dict[str, Any]) -> bool:
    """Whether a tool came to its end, found nothing unexpected, and every result was right."""
    ended = one["summaries"] > 0 and -signal.SIGKILL not in one["statuses"]
    wrong = any(c["wrong"] or c["lost"] for c in one["cells"])
    return ended and bool(one["cells"]) and not one["findings"] and not wrong


def lines_of(tool: str, one: dict[str, Any]) -> list[str]:
    """What to read on the terminal."""
    cells = one["cells"]
    counts = {n: sum(c[n] for c in cells) for n in ("right", "builds")}
    wrong = [w for c in cells for w in (*c["wrong"], *([c["lost"]] if c["lost"] else []))]
    ran = f"{counts['builds']} builds, {counts['right']} cells right, wrong: {wrong[:5]}"
    ran += f", builds left: {cells[-1]['left'] if cells else 'all'}"
    head = f"{tool}: {'clean' if is_clean(one) else 'NOT clean'}, {one['seconds']} s, statuses "
    head += f"{one['statuses']}, {one['errors']} errors in {one['summaries']} summaries; {ran}"
    found = [f"  {f['count']} x {f['what']} in {f['kernel']}" for f in one["findings"][:20]]
    return [head, *found, *(f"  note: {note}" for note in one["notes"][:5])]


if __name__ == "__main__":
    main()
