"""What a sweep costs beside measuring: of Snakemake, of the workflow, and of a call from Python.

    PYTHONPATH=workflow/scripts python experiments/benchmarks/fixed_cost.py --out fixed.json

In each of the repeats everything is done once, in turn: `import snakemake.cli` and `snakemake -n`
of config/gallery.yaml (processor seconds, and their ratio within a repeat), `snakemake cells` of a
few cells that have not been measured (seconds by the wall's clock), and `gpushmoo.sweep` of the
same cells in this process, which has swept before. Measuring is what the logs say of it, from the
moment at which the buffers are ready; the rest is the fixed cost. Code that kernels compile to is
kept from a run before the first repeat.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import gpushmoo
import yaml
from gpushmoo.core.paths import ROOT
from gpushmoo.storage.wholefile import write_json

KERNEL = "copy2d_coalesced"
RUN = "fixed-cost"
AXES = {"block_x": [8, 16, 64], "block_y": [4, 8, 32]}
MEASURE = {"repeats": 1, "min_samples": 6, "max_samples": 7}
SWEPT = {"dtypes": ["float"], "sizes": [256], "axes": AXES}
IMPORT = [sys.executable, "-c", "import snakemake.cli"]
SNAKEMAKE = [sys.executable, "-m", "snakemake"]
# A line of a job's log, by which the time of day is known.
STAMP = r"^(\S+ \S+) INFO "
READY, MEASURED = STAMP + r"buffers of .* are ready$", STAMP + r"measured$"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--backend", default="auto")
    given = parser.parse_args()
    # A job logs this much; a call from Python as much as is asked for.
    logging.getLogger(gpushmoo.__name__).setLevel(logging.INFO)
    load, found = os.getloadavg()[0], measured(given.repeats, given.backend)
    facts = {"cores": os.cpu_count(), "load_before": load, "repeats": given.repeats}
    result = {**facts, "snakemake": snakemake_version(), "seconds": found}
    write_json(given.out, result)
    for name, spread in found.items():
        print(f"{name:>32}: {spread['median']:.2f} ({spread['least']:.2f} to {spread['most']:.2f})")


def measured(repeats: int, backend: str) -> dict[str, dict[str, float]]:
    """Median, least and most of every quantity, in seconds or (`ratio`) as a number."""
    series: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(yaml.safe_dump(configuration(backend)), encoding="utf-8")
        cells_run(config)
        call(backend)
        for _ in range(repeats):
            once = {
                "import, processor": processor_s(IMPORT),
                "dry run, processor": processor_s(
                    [*SNAKEMAKE, "-n", "--configfile", "config/gallery.yaml"]
                ),
            }
            once["dry run over import, ratio"] = (
                once["dry run, processor"] / once["import, processor"]
            )
            begin = children_s()
            whole, measuring = cells_run(config)
            once["cells with measuring, processor"] = children_s() - begin
            once |= {"cells, measuring": measuring, "cells, beside measuring": whole - measuring}
            whole, measuring = call(backend)
            once |= {"call, measuring": measuring, "call, beside measuring": whole - measuring}
            for name, value in once.items():
                series.setdefault(name, []).append(value)
    return {
        name: {"median": statistics.median(values), "least": min(values), "most": max(values)}
        for name, values in series.items()
    }


def configuration(backend: str) -> dict[str, object]:
    """A run of the few cells."""
    what = {"only": [KERNEL], "kernels": {KERNEL: SWEPT}, "measure": MEASURE}
    return {"run": RUN, "backend": backend, **what}


def processor_s(command: Sequence[str]) -> float:
    """Processor seconds, of user and system, that a command and its children take."""
    before = children_s()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return children_s() - before


def children_s() -> float:
    """Processor seconds of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cells_run(config: Path) -> tuple[float, float]:
    """Seconds of `snakemake cells`, and those of measuring in it; nothing is taken over."""
    shutil.rmtree(ROOT / "results" / RUN / "cells", ignore_errors=True)
    begin = time.perf_counter()
    subprocess.run(
        [*SNAKEMAKE, "--cores", "all", "--configfile", str(config), "--", "cells"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    seconds = time.perf_counter() - begin
    logs = (ROOT / "results" / RUN / "logs" / "measure").glob("*.log")
    return seconds, sum(measuring_s(log.read_text(encoding="utf-8")) for log in logs)


def call(backend: str) -> tuple[float, float]:
    """Seconds of `gpushmoo.sweep` of the same cells, and those of measuring in it."""
    begin = time.perf_counter()
    swept = gpushmoo.sweep(
        ROOT / "kernels" / KERNEL, backend=backend, progress=False, **SWEPT, **MEASURE
    )
    return time.perf_counter() - begin, measuring_s(swept.log)


def measuring_s(log: str) -> float:
    """Seconds from the moment at which the buffers were ready until all was measured."""
    ready, done = (re.search(pattern, log, re.MULTILINE) for pattern in (READY, MEASURED))
    assert ready is not None
    assert done is not None
    begin, end = (datetime.strptime(m[1], "%Y-%m-%d %H:%M:%S,%f") for m in (ready, done))
    return (end - begin).total_seconds()


def snakemake_version() -> str:
    """Of the Snakemake that was run."""
    told = subprocess.run([*SNAKEMAKE, "--version"], check=True, capture_output=True, text=True)
    return told.stdout.strip()


if __name__ == "__main__":
    main()
