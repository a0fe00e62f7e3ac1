"""Which estimate of a launch's time on a CPU does another run find again, if cores are busy?

    PYTHONPATH=workflow/scripts:kernels python experiments/benchmarks/busy_cores.py --out busy.json

Sweeps three kernels eight times, each time in a fresh process, on idle cores and beside BUSY
processes a core that compute with the same niceness. Each estimate is made of the same samples: of
the times of OpenCL's events, or of the seconds that the threads of the process computed. A run's
common shift is its median over the cells, and counts for no cell. The loss of a winner is by how
much it is slower than the fastest cell, both by the mean of all runs on idle cores. Needs an OpenCL
CPU.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]

SHAPES = {"block_x": [4, 8, 16, 32, 64], "block_y": [4, 8, 16, 32, 64]}
KERNELS: Mapping[str, Mapping[str, Any]] = {
    "copy2d_coalesced": {"sizes": [1024], "variants": ["element"], "axes": SHAPES},
    "transpose": {
        "sizes": [1024],
        "variants": ["tile"],
        "axes": {"TILE": [16, 32], "ROWS": [1, 2, 4, 8]},
    },
    "stencil5": {
        "variants": ["global"],
        "sizes": [1024],
        "axes": {"block_x": [8, 16, 32, 64, 128], "block_y": [1, 2, 4, 8]},
    },
}


def lower_quartile(samples: Floats) -> float:
    """The first quartile."""
    return float(np.quantile(samples, 0.25))


ESTIMATES: Mapping[str, tuple[str, Callable[[Floats], float]]] = {
    "median of event times": ("samples_s", lambda s: float(np.median(s))),
    "lower quartile of event times": ("samples_s", lower_quartile),
    "least event time": ("samples_s", lambda s: float(s.min())),
    "median of processor time": ("processor_s", lambda s: float(np.median(s))),
    "lower quartile of processor time": ("processor_s", lower_quartile),
}


def main() -> None:
    """Measure, or one run of one kernel in this process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--busy", type=int, default=4, help="busy processes a core")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("KERNEL", "FILE"))
    given = parser.parse_args()
    if given.one:
        one_run(*given.one)
        return
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        for kernel in KERNELS:
            idle = runs_of(kernel, Path(name), given.runs, 0)
            truth = np.log(idle["lower quartile of event times"]).mean(axis=0)
            beside = runs_of(kernel, Path(name), given.runs, given.busy)
            for cores, estimates in (("idle", idle), ("busy", beside)):
                found[f"{kernel}, {cores}"] = {
                    how: figures(np.log(values), truth) for how, values in estimates.items()
                }
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "busy": given.busy}
    whole = {"date": datetime.now(UTC).isoformat("T", "seconds"), **machine, "found": found}
    print(*lines(found), sep="\n")
    if given.out:
        given.out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def runs_of(kernel: str, folder: Path, runs: int, busy: int) -> dict[str, Floats]:
    """Return an array of shape (runs, cells) for each of ESTIMATES."""
    tables = []
    with busy_processes(busy * (os.cpu_count() or 1)):
        for i in range(runs):
            file = folder / f"{kernel}-{busy}-{i}.parquet"
            subprocess.run([sys.executable, __file__, "--one", kernel, str(file)], check=True)
            tables.append(pd.read_parquet(file).set_index("cell_key").sort_index())
    keys = tables[0].index
    for table in tables:
        keys = keys.intersection(table.index)
    return {
        how: np.array([[of(np.asarray(s)) for s in table.loc[keys, column]] for table in tables])
        for how, (column, of) in ESTIMATES.items()
    }


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Processes that compute, as nice as this one."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def one_run(kernel: str, file: str) -> None:
    """Sweep a kernel once, and write its verified cells."""
    from gpushmoo import sweep

    done = sweep(
        f"kernels/{kernel}",
        dtypes=["float"],
        backend="opencl",
        progress=False,
        search={"mode": "all"},
        max_samples=21,
        **KERNELS[kernel],
    )
    cells = done.cells[done.cells["status"] == "ok"]
    # Times of events, also where cells are ranked by others.
    events_s = cells["events_s"].where(cells["events_s"].notna(), cells["samples_s"])
    found = cells[["cell_key", "processor_s"]].assign(samples_s=events_s)
    found.to_parquet(file)


def figures(logs: Floats, truth: Floats) -> dict[str, float]:
    """The spread between the runs, and the loss of each run's winner; shares."""
    own = logs - np.median(logs, axis=1, keepdims=True)
    spreads = own.std(axis=0, ddof=1)
    losses = np.expm1(truth[logs.argmin(axis=1)] - truth.min())
    return {
        "sd": float(np.sqrt((spreads**2).mean())),
        "sd_90th": float(np.quantile(spreads, 0.9)),
        "loss_mean": float(losses.mean()),
        "loss_most": float(losses.max()),
    }


def lines(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    """The table in Markdown."""
    yield "| kernel, cores | estimate | sd of a cell | 90th percentile | winner's loss | most |"
    yield "|---|---|---|---|---|---|"
    for place, estimates in found.items():
        for how, figures in estimates.items():
            shares = " | ".join(f"{value:.1%}" for value in figures.values())
            yield f"| {place} | {how} | {shares} |"


if __name__ == "__main__":
    main()
