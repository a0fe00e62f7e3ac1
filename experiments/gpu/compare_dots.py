"""Compares our dot products with BabelStream's, cuBLAS's and CuPy's, and with the host's memory.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/compare_dots.py --babelstream BIN... --out OUT.json

Data on the device, 2^28 elements: a round runs each BIN (BabelStream's CUDA version; several may be
given) and ours in a C++ program of the same kind, resident_dot.cu, timed by the host's clock from
the call to the number on the host; then ours, cublasSdot or cublasDdot and `cupy.dot` by the
device's events in this process. Our launch is the fastest of a small sweep that is not counted.

Data on the host: a round asks host_read.cu what the host's memory can be read at by its cores, by
the device and by both, then times NumPy's dot, our host's part alone, the device alone and several
shares of the host, 2^27 elements of double. The rates of a host that others share drift by tens of
percent within seconds; ratios are taken within a round, and their median and interval told.

Needs a CUDA device, CuPy and nvcc. Exit status 1 when the device slowed itself down.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from dot_products.host_dot import host_dot
from gpushmoo import __version__
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.median import median_interval
from gpushmoo.core.paths import ROOT
from gpushmoo.core.space import Cell, Problem
from gpushmoo.devices.base import Bound, Program
from gpushmoo.devices.cuda.device import CudaDevice
from gpushmoo.devices.cuda.timing import CudaBound
from gpushmoo.measuring.buffers import FedSpace, ReducedSpace, Space, open_space
from gpushmoo.measuring.rounds import SETTLE_S
from gpushmoo.workloads.contract import LibraryCall, ReducingWorkload
from gpushmoo.workloads.loader import KernelFolder, load_kernel

RESIDENT_N, HOST_N = 2**28, 2**27
ROUNDS, HOST_ROUNDS = 7, 9
CALLS = 50  # of each of ours in a round, and of BabelStream's in a run
SHARES = (40, 45, 50, 55, 60, 65, 70, 75)
STREAMED = {
    "streams": 2,
    "min_per_stream": 4096,
    "blocks_per_stream": 32,
    "threads": 1024,
    "chunk": 2**22,
}
Rounds = list[dict[str, float]]


def cell(kernel: str, dtype: str, variant: str, n: int, **params: int) -> Cell:
    return Cell(kernel, dtype, variant, Problem(1, n), tuple(sorted(params.items())))


def mean_s(call: Callable[[], object], calls: int) -> float:
    """Mean seconds of a call, each by itself."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


class Resident:
    """One element type's vectors on the device."""

    def __init__(self, device: CudaDevice, dtype: str) -> None:
        self.device, self.dtype = device, dtype
        self.nbytes = 2 * RESIDENT_N * DTYPES[dtype].itemsize
        self.folder = load_kernel(ROOT / "kernels/dot_resident")
        workload = self.folder.workload
        assert isinstance(workload, ReducingWorkload)
        problem = Problem(1, RESIDENT_N)
        inputs = workload.inputs(problem, dtype, np.random.default_rng(1))
        self.space = ReducedSpace(device, workload, problem, dtype, lambda: inputs)
        self.program = device.build(self.folder.path, DTYPES[dtype], {})

    def fastest(self) -> Cell:
        """Of a sweep of launches; the one found is verified."""
        units = self.device.info.units
        found: dict[Cell, float] = {}
        for threads in (512, 1024):
            for waves in (2, 4, 8, 16):
                for unroll in (1, 2, 4):
                    launch = {"threads": threads, "grid": waves * units, "unroll": unroll}
                    tried = cell("dot_resident", self.dtype, "packs", RESIDENT_N, **launch)
                    bound = self.space.bind(self.program, tried)
                    found[tried] = float(np.median([bound.sample(1) for _ in range(7)]))
        best = min(found, key=lambda c: found[c])
        self.verify(best)
        return best

    def verify(self, best: Cell) -> None:
        bound = self.space.bind(self.program, best)
        self.space.poison()
        bound.run()
        verdict = self.space.verdict(best, bound)
        if verdict.wrong_words:
            raise SystemExit(f"dot_resident is wrong: {verdict.message}")

    def rounds(self, peers: Sequence[Path], ours: Path, best: Cell) -> Rounds:
        """GB/s of each peer and of ours, by round: whole calls, then by events."""
        import cupy

        buffers, scalar = self.space.buffers, DTYPES[self.dtype].scalar
        x, y = (buffers[name].view(scalar) for name in ("x", "y"))
        call = LibraryCall("dot", ("x", "y"), "dst", self.dtype)
        pool = cupy.cuda.MemoryPool()
        cupy_dot = CudaBound(self.device.timer, lambda: cupy.dot(x, y))
        by_events: dict[str, Bound] = {
            "cublas, by events": self.device.bind_library(call, buffers),
            "ours, by events": self.space.bind(self.program, best),
        }
        found = []
        for number in range(ROUNDS):
            rates = {path.name: babelstream(path, self.dtype) for path in peers}
            rates["ours"] = self.gbs(own_program(ours, best))
            # Who begins takes turns.
            for name in sorted(by_events, reverse=number % 2 == 1):
                samples = [by_events[name].sample(1) for _ in range(CALLS)]
                rates[name] = self.gbs(float(np.median(samples)))
            # Last: it takes and gives back an array of the product, which slows what comes next.
            with cupy.cuda.using_allocator(pool.malloc):
                samples = [cupy_dot.sample(1) for _ in range(CALLS)]
            pool.free_all_blocks()
            rates["cupy.dot, by events"] = self.gbs(float(np.median(samples)))
            found.append(rates)
            print(self.dtype, {k: round(v) for k, v in rates.items()}, flush=True)
        return found

    def gbs(self, seconds: float) -> float:
        return self.nbytes / seconds * 1e-9


def own_program(binary: Path, best: Cell) -> float:
    """Mean seconds of a call of resident_dot.cu."""
    launch = [str(best["grid"]), str(best["threads"])]
    command = [str(binary), str(RESIDENT_N), str(CALLS), *launch]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split(",")[-1])


def built(folder: Path, dtype: str, best: Cell) -> Path:
    """resident_dot.cu with the launch's entry."""
    binary = folder / f"resident_dot_{dtype}"
    options = ["-std=c++17", "-O3", "-arch=native", f"-Delement_t={dtype}"]
    options += [f"-DENTRY=dot_{best['unroll']}", f"-I{ROOT / 'kernels/dot_resident'}"]
    source = str(ROOT / "experiments/gpu/resident_dot.cu")
    subprocess.run(["nvcc", *options, source, "-o", str(binary)], check=True)
    return binary


def babelstream(binary: Path, dtype: str) -> float:
    """GB/s of Dot by the mean time of a call, of which it leaves the first out itself."""
    command = [str(binary), "--csv", "-s", str(RESIDENT_N), "-n", str(CALLS + 1)]
    command += ["--float"] if dtype == "float" else []
    # Its check of the float sum fails whatever computes it: its own reference is a running sum.
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    line = re.search(r"^Dot,.*,([^,\s]+)\s*$", text, re.MULTILINE)
    if line is None:
        raise SystemExit(f"{binary}: no line of Dot in its output:\n{text}")
    return 2 * RESIDENT_N * DTYPES[dtype].itemsize / float(line[1]) * 1e-9


class HostRead:
    """host_read.cu, built and running."""

    def __init__(self, folder: Path) -> None:
        binary = folder / "host_read"
        options = ["-O3", "-arch=native", "-Xcompiler", "-march=native,-fopenmp"]
        source = str(ROOT / "experiments/gpu/host_read.cu")
        subprocess.run(["nvcc", *options, source, "-o", str(binary)], check=True)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([binary], stdin=pipe, stdout=pipe, text=True)
        self.cores = int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def rates(self, threads: int, places: int, device: bool) -> tuple[float, float]:
        """GB/s of the cores and of the device."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{threads} {places} {int(device)}\n")
        self._process.stdin.flush()
        cores, fed = self._answer().split()
        return float(cores), float(fed)

    def ceilings(self) -> Iterator[tuple[str, float]]:
        """The most of the cores alone, of the device alone, and of both, over ways to read."""
        ways = [(threads, places) for threads in (self.cores // 2, self.cores) for places in (1, 4)]
        yield "read by cores", max(self.rates(*way, False)[0] for way in ways)
        yield "read by device", self.rates(0, 1, True)[1]
        yield "read by both", max(sum(self.rates(*way, True)) for way in ways)


def streamed(space: Space, program: Program, percent: int) -> Callable[[], object]:
    params = {**STREAMED, "host_percent": percent}
    return space.bind(
        program, cell("dot_streamed", "double", "pinned-pooled", HOST_N, **params)
    ).run


def host_rounds(device: CudaDevice, reader: HostRead) -> Rounds:
    """GB/s of the memory and of each way to use it, by round."""
    folder: KernelFolder = load_kernel(ROOT / "kernels/dot_streamed")
    space = open_space(device, folder.workload, Problem(1, HOST_N), "double", "pinned-pooled", 1)
    assert isinstance(space, FedSpace)
    program = device.build(folder.path, DTYPES["double"], {})
    x, y = space.arrays[True]["x"], space.arrays[True]["y"]
    ways: dict[str, Callable[[], object]] = {
        "numpy": lambda: np.dot(x, y),
        "host's part": lambda: host_dot(x, y),
        "device": streamed(space, program, 0),
        **{f"{p} % on the host": streamed(space, program, p) for p in SHARES},
    }
    for way in ways.values():
        way()
    rng, found = np.random.default_rng(1), []
    for _ in range(HOST_ROUNDS):
        rates = dict(reader.ceilings())
        for name in rng.permutation(list(ways)):
            # NumPy's threads spin on after a call, and would share the cores.
            time.sleep(SETTLE_S)
            rates[str(name)] = 16 * HOST_N / mean_s(ways[str(name)], 5) * 1e-9
        found.append(rates)
        print({k: round(v, 1) for k, v in rates.items()}, flush=True)
    return found


def summary(values: Sequence[float]) -> dict[str, float]:
    found = median_interval(list(values))
    return {"median": found.median, "low": found.low, "high": found.high}


def resident_ratios(rounds: Rounds) -> dict[str, Any]:
    """Ours over each peer, like with like."""
    events = [name for name in rounds[0] if name.endswith("by events")]
    whole = [name for name in rounds[0] if name not in events]
    return {
        peer: summary([r[ours] / r[peer] for r in rounds])
        for ours, peers in (("ours", whole), ("ours, by events", events))
        for peer in peers
        if peer != ours
    }


def host_ratios(rounds: Rounds) -> dict[str, Any]:
    """Of the share that is best in the median of all rounds."""
    shares = [name for name in rounds[0] if "%" in name]
    best = max(shares, key=lambda name: float(np.median([r[name] for r in rounds])))
    alone = ("numpy", "host's part", "device")
    return {
        "best": best,
        "over the faster side": summary([r[best] / max(r[a] for a in alone) for r in rounds]),
        "over the faster of its own sides": summary(
            [r[best] / max(r["host's part"], r["device"]) for r in rounds]
        ),
        "over what both can read": summary([r[best] / r["read by both"] for r in rounds]),
        "device over its link": summary([r["device"] / r["read by device"] for r in rounds]),
        "predicted share": summary(
            [100 * r["host's part"] / (r["host's part"] + r["device"]) for r in rounds]
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--babelstream", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        device = CudaDevice(0, Path(folder))
        found: dict[str, Any] = {
            "gpushmoo": __version__,
            "device": {**asdict(device.info), "extra": dict(device.info.extra)},
            "host": {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()},
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": "experiments/gpu/compare_dots.py",
        }
        for dtype in ("double", "float"):
            resident = Resident(device, dtype)
            best = resident.fastest()
            own = built(Path(folder), dtype, best)
            rounds = resident.rounds(args.babelstream, own, best)
            ratios = resident_ratios(rounds)
            found[dtype] = {"launch": dict(best.params), "rounds_gbs": rounds, "ours over": ratios}
            del resident
        rounds = host_rounds(device, HostRead(Path(folder)))
        found["host fed"] = {"rounds_gbs": rounds, "ratios": host_ratios(rounds)}
        reading = device.reading()
        found["slowed"] = reading is not None and reading.slowed
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    for part in ("double", "float"):
        print(part, json.dumps(found[part]["ours over"]))
    print(json.dumps(found["host fed"]["ratios"], indent=1))
    return int(found["slowed"])


if __name__ == "__main__":
    sys.exit(main())
