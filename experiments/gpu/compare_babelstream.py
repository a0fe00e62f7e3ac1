"""Compares the five kernels of BabelStream with ours at our best launch.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/compare_babelstream.py FOLDER OUT.json --version 6.0-rc

FOLDER holds BabelStream's CUDA version, built, as ``cuda-stream``. For each element type our
kernels `stream` and `stream_dot` are swept once, and the fastest launch of each is verified. Then
both programs are timed in rounds, each first in every other round.

The clocks differ. BabelStream's is the host's, from the call to the end of the wait for it; Dot's
holds the last additions on the host. Its figure is that of its fastest call of a hundred. Ours is
the device's, over launches that follow each other; our figure is that of the median sample.

Needs a CUDA device and CuPy. Exit status 1 when the device slowed itself down.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from gpushmoo import __version__
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.median import median_interval
from gpushmoo.core.paths import ROOT
from gpushmoo.core.space import Cell, enumerate_cells
from gpushmoo.devices.base import PreparedLaunch
from gpushmoo.devices.cuda.backend import CudaDevice
from gpushmoo.measuring.cell_memory import open_space
from gpushmoo.workloads.loader import load_kernel

# Kernel folder and variant of each of BabelStream's functions.
FUNCTIONS = {
    "Copy": ("stream", "copy"),
    "Mul": ("stream", "mul"),
    "Add": ("stream", "add"),
    "Triad": ("stream", "triad"),
    "Dot": ("stream_dot", "packs"),
}
SIZES = (2**28,)
CALLS = 101  # of BabelStream, which leaves the first out
TRIES, SAMPLES = 5, 50  # of a launch in our sweep, and in a round
SAMPLE_S = 1e-3  # a sample has as many launches as take about so long
THREADS, UNROLLS, WAVES = (128, 256, 512, 1024), (1, 2, 4, 8), (2, 4, 8, 16)

Rates = dict[str, float]


@dataclass(frozen=True)
class Peer:
    """The fastest launch of ours of one function, bound to its buffers."""

    gb: float
    best: Cell
    bound: PreparedLaunch

    def rate(self) -> float:
        """GB/s of the median sample."""
        return self.gb / float(np.median(timed(self.bound, SAMPLES)))


def timed(bound: PreparedLaunch, samples: int) -> list[float]:
    """Seconds of a launch, each the mean over a sample."""
    launches = max(1, round(SAMPLE_S / bound.sample(1)))
    return [bound.sample(launches) for _ in range(samples)]


def axes_of(kernel: str, multiprocessors: int) -> dict[str, list[int]]:
    """Return the axes to sweep on a device with this number of multiprocessors."""
    axes = {"threads": list(THREADS), "unroll": list(UNROLLS)}
    return axes | ({"grid": [w * multiprocessors for w in WAVES]} if kernel == "stream_dot" else {})


def opened(device: CudaDevice, function: str, dtype: str, n: int) -> Peer:
    """Sweep our kernel of `function` and verify its fastest launch."""
    kernel, variant = FUNCTIONS[function]
    folder = load_kernel(ROOT / "kernels" / kernel)
    workload, multiprocessors = folder.workload, device.info.multiprocessors
    problem = workload.problem(n)
    space = open_space(device, workload, problem, dtype, variant, seed=1)
    program = device.build(folder.path, DTYPES[dtype], workload.defines(dtype, variant))
    cells = enumerate_cells(kernel, dtype, [variant], [problem], axes_of(kernel, multiprocessors))
    bounds = {cell: space.bind(program, cell) for cell in cells}
    best = min(cells, key=lambda cell: float(np.median(timed(bounds[cell], TRIES))))
    space.poison()
    bounds[best].run()
    verdict = space.verdict(best, bounds[best])
    if verdict.wrong_words:
        raise SystemExit(f"{kernel} {variant} {dtype} is wrong: {verdict.message}")
    return Peer(sum(workload.bytes_moved(best)) * 1e-9, best, bounds[best])


def babelstream(binary: Path, dtype: str, n: int) -> Rates:
    """GB/s of each function by its fastest call. Raises SystemExit where one is not printed."""
    command = [str(binary), "--csv", "-s", str(n), "-n", str(CALLS)]
    command += ["--float"] if dtype == "float" else []
    # Its check of the float sum fails whatever computes it: its own reference is a running sum.
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    rows = {line.split(",")[0]: line.split(",")[1:] for line in text.splitlines()}
    if missing := [name for name in FUNCTIONS if len(rows.get(name, ())) != 7]:
        raise SystemExit(f"BabelStream printed no line of {missing[0]}:\n{text}")
    return {name: float(rows[name][3]) * 1e-3 for name in FUNCTIONS}


def rounds_of(
    device: CudaDevice, binary: Path, dtype: str, n: int, rounds: int
) -> tuple[dict[str, Peer], dict[str, list[Rates]]]:
    """Ours of each function, and GB/s of both programs by function and round."""
    ours = {function: opened(device, function, dtype, n) for function in FUNCTIONS}
    found: dict[str, list[Rates]] = {function: [] for function in FUNCTIONS}
    for number in range(rounds):
        first = babelstream(binary, dtype, n) if number % 2 else None
        mine = {function: peer.rate() for function, peer in ours.items()}
        theirs = first or babelstream(binary, dtype, n)
        for function, rates in found.items():
            rates.append({"ours": mine[function], "theirs": theirs[function]})
            print(dtype, n, function, {k: round(v) for k, v in rates[-1].items()}, flush=True)
    return ours, found


def ratio(rounds: Sequence[Rates]) -> dict[str, float]:
    """Ours over theirs, within a round: median with its 95 % interval, least and greatest."""
    values = [rates["ours"] / rates["theirs"] for rates in rounds]
    m = median_interval(values)
    interval = {"median": m.median, "low": m.low, "high": m.high}
    return interval | {"least": min(values), "greatest": max(values)}


def compared(device: CudaDevice, binary: Path, dtype: str, n: int, rounds: int) -> dict[str, Any]:
    """All that is said of one element type and length, by function."""
    ours, found = rounds_of(device, binary, dtype, n, rounds)
    said = {}
    for function, rates in found.items():
        launch = {"best launch": dict(ours[function].best.params)}
        said[function] = launch | {"ours over theirs": ratio(rates), "rounds_gbs": rates}
    return said


def main() -> int:
    """Measure, write OUT, print the ratios, and say by the exit status whether they count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="holds the built cuda-stream")
    parser.add_argument("out", type=Path)
    parser.add_argument("--version", required=True, help="of BabelStream")
    parser.add_argument("--rounds", type=int, default=7, help="six at least, for an interval")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of elements")
    args = parser.parse_args()
    binary = args.folder.resolve() / "cuda-stream"
    if not binary.is_file():
        parser.error(f"there is no {binary}; build BabelStream with CUDA into that folder")
    with tempfile.TemporaryDirectory() as cache:
        device = CudaDevice(0, Path(cache))
        found = []
        for n, dtype in product(args.sizes, ("double", "float")):
            functions = compared(device, binary, dtype, n, args.rounds)
            found.append({"dtype": dtype, "elements": n, "functions": functions})
        reading = None if device.power is None else device.power.read()
        told = {"gpushmoo": __version__, "babelstream": args.version}
        told["python"] = platform.python_version()
        told["device"] = {**asdict(device.info), "extra": dict(device.info.extra)}
        told["written_at"] = datetime.now(UTC).isoformat(timespec="seconds")
        told |= {"slowed": reading is not None and reading.slowed, "compared": found}
    args.out.write_text(json.dumps(told, indent=1) + "\n")
    for part in found:
        for function, said in part["functions"].items():
            median = round(said["ours over theirs"]["median"], 3)
            print(part["dtype"], part["elements"], function, said["best launch"], median)
    return int(told["slowed"])


if __name__ == "__main__":
    sys.exit(main())
