"""Measures one configuration again and again: runs of the same thing, and runs with work planted.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python tests/benchmarks/run_again.py plan --config tests/benchmarks/planted/gpu.yaml \\
        --backend cuda --plan plan.json
    python tests/benchmarks/run_again.py measure --plan plan.json --out cells --runs 16 \\
        --planted 1 3 10 --limit-s 430

The first command needs the environment but no device, the second what `tests/gpu/record_run.py`
needs. Each run is a process of its own and writes ``cells/r00``, ``cells/r01``, ..., and
``cells/planted-01-00``, ... with as many per cent of work planted (`planted/planted_copy`): of each
per cent one after every second run, which it is to be held against. After `limit-s` seconds none
is begun; the same command then goes on with those that are missing.
`tests/benchmarks/false_alarms.py` judges them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

RECORD = Path(__file__).parents[1] / "gpu/record_run.py"


def main() -> None:
    """Plan, or measure what was planned."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("plan", "measure"))
    parser.add_argument("--config")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--planted", type=int, nargs="*", default=())
    parser.add_argument("--limit-s", type=float, default=3600.0)
    options = parser.parse_args()
    if options.step == "plan":
        command = [sys.executable, RECORD, "plan", "--config", options.config]
        command += ["--backend", options.backend, "--plan", options.plan]
        subprocess.run(command, check=True)
    else:
        names = in_turns(options.runs, options.planted)
        measure_runs(options.plan, options.out, names, options.limit_s)


def in_turns(runs: int, planted: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Name and planted per cent of each run, in the order in which they are measured."""
    for i in range(runs):
        yield f"r{i:02}", 0
        if i % 2:
            yield from ((f"planted-{p:02}-{i // 2:02}", p) for p in planted)


def measure_runs(
    plan: Path, out: Path, names: Iterator[tuple[str, int]], limit_s: float
) -> list[str]:
    """Measure the runs, each in a process of its own; the names of those that were begun."""
    begin = time.monotonic()
    told = json.loads(plan.read_text(encoding="utf-8"))[0]
    out.mkdir(parents=True, exist_ok=True)
    begun = [path.name for path in sorted((out / "builds").glob("*"))]
    for name, per_cent in names:
        if name in begun:
            continue
        left = limit_s - (time.monotonic() - begin)
        if left < 0:
            break
        own = out / "plan.json"
        # The code is the same in all of them: it is built once.
        builds = [] if begun else told["builds"]
        if begun:
            shutil.copytree(out / "builds" / begun[0], out / "builds" / name, dirs_exist_ok=True)
        own.write_text(json.dumps([{**told, "run": name, "builds": builds}]), encoding="utf-8")
        command = [sys.executable, RECORD, "measure", "--plan", own, "--out", out]
        environment = {**os.environ, "PLANTED_PER_CENT": str(per_cent)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False
        )
        begun.append(name)
        lines = done.stdout.splitlines()
        failed = done.returncode != 0 or any("failed" in line for line in lines)
        print(f"{time.monotonic() - begin:.0f} s {name}", flush=True)
        if failed:
            print(done.stdout[-2000:], done.stderr[-2000:], flush=True)
    return begun


if __name__ == "__main__":
    main()
