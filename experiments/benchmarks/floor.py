"""Shows what the seconds of a short call are made of, by a sampling profiler.

    PYTHONPATH=workflow/scripts python experiments/benchmarks/floor.py OUT.json [--repeats 3]

py-spy looks at both processes of the shell's sweep of `fixed_cost.py`, four cells of two variants,
250 times a second: at the caller, and at the measuring process, which the caller starts before its
imports. Each sample of a main thread counts for the first of STEPS that one of its frames belongs
to. The call is made once before, so that its kernels are compiled and files are in memory. Seconds
are medians over the repeats. The profiler makes the call a quarter longer, so read the shares.

Needs py-spy on the PATH, and a device. With ``--raw FILE ...`` it reads what
``py-spy record --subprocesses --idle --format raw --rate 250`` has written.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from fixed_cost import SHELL
from gpushmoo.core.paths import ROOT
from gpushmoo.storage.wholefile import write_json

RATE = 250
# By process: the words for a step, and a part of a frame in it. The first step that fits counts.
STEPS: dict[str, tuple[tuple[str, str], ...]] = {
    "caller": (
        ("imports for the steps after measuring", "analysis/aggregate.py"),
        ("waits for the open device", "devices_of"),
        ("waits while the cells are measured", "Supervisor."),
        ("waits while the cells are measured", "Session.begin"),
        ("imports", "_find_and_load"),
        ("everything else", "<module> (gpushmoo"),
        ("start of Python", ""),
    ),
    "measuring process": (
        ("waits for the caller", "Connection._recv"),
        ("import of CuPy", "load_cupy"),
        ("driver, context, own kernels, sensors", "CudaDevice"),
        ("verification and samples", "ShardRun.measure"),
        ("imports", "_find_and_load"),
        ("everything else", "<module> (gpushmoo"),
        ("start of Python", ""),
    ),
}
WORKER = "gpushmoo.measuring.worker"


def main() -> None:
    """Profile or read, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--raw", type=Path, nargs="+", default=[])
    given = parser.parse_args()
    texts = [file.read_text() for file in given.raw] or profiles(given.repeats)
    found = [seconds_of(text.splitlines()) for text in texts]
    steps = {
        process: {
            step: median(one[process].get(step, 0.0) for one in found)
            for step in dict.fromkeys(words for words, _ in STEPS[process])
        }
        for process in STEPS
    }
    facts = {"rate": RATE, "repeats": len(texts), "cores": os.cpu_count()}
    write_json(given.out, {**facts, "seconds": steps})
    for process, of_process in steps.items():
        print(f"{process}, {sum(of_process.values()):.2f} s")
        for step, seconds in of_process.items():
            print(f"{seconds:8.2f}  {step}")


def profiles(repeats: int) -> list[str]:
    """Return the text of a profile of each repeat."""
    subprocess.run(SHELL, cwd=ROOT, check=True, capture_output=True)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw"
        command = ["py-spy", "record", "--subprocesses", "--idle", "--format", "raw"]
        command += ["--rate", str(RATE), "-o", str(raw), "--", *SHELL]
        for _ in range(repeats):
            subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
            found.append(raw.read_text())
    return found


def seconds_of(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the seconds by process and step.

    A line has the frames of a thread from the outermost on, and the number of samples.
    """
    found: dict[str, dict[str, float]] = {process: {} for process in STEPS}
    for line in lines:
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if any("Thread.run" in frame for frame in frames):
            continue
        process = "measuring process" if any(WORKER in f for f in frames[:2]) else "caller"
        step = step_of(process, frames)
        of_process = found[process]
        of_process[step] = of_process.get(step, 0.0) + int(count) / RATE
    return found


def step_of(process: str, frames: Sequence[str]) -> str:
    """Return the words of the first step that one of the frames belongs to."""
    return next(words for words, part in STEPS[process] if any(part in frame for frame in frames))


if __name__ == "__main__":
    main()
