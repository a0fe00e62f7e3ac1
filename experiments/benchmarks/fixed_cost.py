"""How long is it until the first answer? From the shell, from Python, and `snakemake -n`.

    PYTHONPATH=workflow/scripts python experiments/benchmarks/fixed_cost.py OUT.json

In each repeat, in turn: the seconds of a sweep of four cells of two variants from the shell; those
of the same in a new Python, with its imports, and of a second call; and the processor seconds of
`snakemake -n` of config/gallery.yaml over those of `import snakemake.cli`. The first repeat, which
compiles, does not count. ``--answers`` leaves Snakemake out.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpushmoo.core.paths import ROOT
from gpushmoo.storage.wholefile import write_json

SHELL = [sys.executable, "-m", "gpushmoo", "sweep", "kernels/copy2d_coalesced", "--dtypes=float"]
SHELL += ["--sizes=2048", "--axes=block_x=32,64", "--axes=block_y=8", "--variants=element,tile32"]
# What a new Python does; it prints the seconds of two calls.
CALLS = """
import time
begin = time.perf_counter()
import gpushmoo
for _ in range(2):
    axes = {"block_x": [32, 64], "block_y": 8}
    gpushmoo.sweep("kernels/copy2d_coalesced", axes=axes, dtypes="float", sizes=2048,
                   variants=["element", "tile32"], progress=False)
    print(time.perf_counter() - begin)
    begin = time.perf_counter()
"""
IMPORT = [sys.executable, "-c", "import snakemake.cli"]
PLAN = [sys.executable, "-m", "snakemake", "-n", "--configfile", "config/gallery.yaml"]


def answers() -> dict[str, float]:
    """Seconds from the shell, and of two calls in a new Python."""
    begin = time.perf_counter()
    run(SHELL)
    shell = time.perf_counter() - begin
    first, second = map(float, run([sys.executable, "-c", CALLS]).split())
    return {"shell": shell, "first call": first, "second call": second}


def processor_s(command: Sequence[str]) -> float:
    """Processor seconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(command: Sequence[str]) -> str:
    """What the command prints."""
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--answers", action="store_true")
    given = parser.parse_args()
    load, series = os.getloadavg()[0], dict[str, list[float]]()
    for repeat in range(given.repeats + 1):
        once = answers()
        if not given.answers:
            once["dry run over import, ratio"] = processor_s(PLAN) / processor_s(IMPORT)
        for name, value in once.items() if repeat else ():
            series.setdefault(name, []).append(value)
    found = {
        name: {"median": statistics.median(values), "least": min(values), "most": max(values)}
        for name, values in series.items()
    }
    facts = {"cores": os.cpu_count(), "repeats": given.repeats, "load_before": load}
    write_json(given.out, {**facts, "seconds": found})
    for name, spread in found.items():
        print(f"{name:>32}: {spread['median']:.2f} ({spread['least']:.2f} to {spread['most']:.2f})")


if __name__ == "__main__":
    main()
