"""Tries honest kernels on a busy machine: how many does a trial on new inputs blame?

    make honest-trials TRIALS=2000 BUSY=6

Each shard has a hundred variants that compete with nobody, so that each of them is tried. They are
measured by the real job in a measuring process, while BUSY processes a core compute. Kernels are
floats, integers or atomics on an output that has its content again before each launch. Ends with
status 1 if a cell is not ``ok``, and prints its message. Needs an OpenCL runtime.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import Bench
from gpushmoo.devices.select import DeviceChoice
from projects import answering_opencl

VARIANTS = tuple(f"v{i:02d}" for i in range(100))
KERNEL = """
#define EACH(i) for (uint i = get_global_id(0); i < n; i += get_global_size(0))

#ifdef OF_float
__kernel void work(__global float *dst, __global const float *src, const uint n)
{
    EACH(i) {
        float y = src[i];
        for (int k = 0; k < WORK; k++) y = y * 0.5f + 0.25f;
        dst[i] = y;
    }
}
#endif

#ifdef OF_integer
__kernel void work(__global uint *dst, __global const uint *src, const uint n)
{
    EACH(i) {
        uint y = src[i];
        for (int k = 0; k < WORK; k++) { y ^= y << 13; y ^= y >> 17; y ^= y << 5; }
        dst[i] = y;
    }
}
#endif

#ifdef OF_atomics
__kernel void work(__global uint *dst, __global const uint *src, const uint n)
{
    EACH(i) for (uint k = 0; k < WORK; k++) atomic_add(&dst[(src[i] + k) % n], k + 1);
}
#endif
"""
WORKLOAD = """
import numpy as np
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Launch

KIND = "{kind}"

class Honest(CopyWorkload):
    name, title, pattern = "honest", "An honest kernel", KIND
    dtypes = ("float", "uint32")
    variants = {variants}
    axes = {{"block_x": [64]}}

    def turns(self, variant):
        # Launches of some ten microseconds to some milliseconds.
        return 1 << int(variant[1:]) % 8

    def defines(self, dtype, variant):
        return {{"OF_" + KIND: "1", "WORK": str(self.turns(variant))}}

    def result_of(self, variant):
        return str(self.turns(variant))

    def inputs(self, problem, dtype, rng):
        own = super().inputs(problem, dtype, rng)
        return own | ({{"dst": np.zeros_like(own["src"])}} if KIND == "atomics" else {{}})

    def expected(self, inputs, variant):
        y = inputs["src"].copy()
        if KIND == "atomics":
            places, y = y.reshape(-1), np.zeros_like(y)
            for k in range(self.turns(variant)):
                np.add.at(y.reshape(-1), (places + np.uint32(k)) % y.size, np.uint32(k + 1))
            return y
        for _ in range(self.turns(variant)):
            if KIND == "float":
                y = y * np.float32(0.5) + np.float32(0.25)
            else:
                y ^= y << np.uint32(13)
                y ^= y >> np.uint32(17)
                y ^= y << np.uint32(5)
        return y

    def reference(self, inputs):
        return self.expected(inputs, "v00")

    def launch(self, cell):
        n = cell.problem.height * cell.problem.width
        args = (BufferRef("dst"), BufferRef("src"), np.uint32(n))
        return Launch("work", (16, 1, 1), (cell["block_x"], 1, 1), args, 1)

WORKLOAD = Honest()
"""
KINDS = {"float": "float", "integer": "uint32", "atomics": "uint32"}


@contextmanager
def busy(processes: int, nice: int) -> Iterator[None]:
    """So many processes that compute."""
    command = ["nice", "-n", str(nice), sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def shard(number: int, choice: DeviceChoice, folder: Path) -> tuple[int, list[str]]:
    """How many variants were measured, and a line for each that is not ``ok``."""
    kind = tuple(KINDS)[number % len(KINDS)]
    kernel = folder / kind
    kernel.mkdir(exist_ok=True)
    (kernel / "kernel.cl").write_text(KERNEL, encoding="utf-8")
    workload = WORKLOAD.format(kind=kind, variants=VARIANTS)
    (kernel / "workload.py").write_text(workload, encoding="utf-8")
    bench = Bench(choice, kernel, folder, folder / "worker.log")
    # The seed draws the inputs of the trials, too.
    own = {"seed": number + 1, "dtype": KINDS[kind], "sizes": [[64, 256]]}
    rows = bench.measure(list(VARIANTS), [64], **own)
    blamed = rows[rows["status"] != "ok"]
    return len(rows), [
        f"{kind}, shard {number}, {row.variant}: {row.status}, {row.message}"
        for row in blamed.itertuples()
    ]


def main() -> None:
    """Read the command line; exit status 1 if a kernel is blamed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=2000, help="at least so many")
    parser.add_argument("--busy", type=int, default=6, help="busy processes a core")
    parser.add_argument("--nice", type=int, default=0, help="niceness of the busy processes")
    given = parser.parse_args()
    cores, began, tried, blamed = os.cpu_count() or 1, time.monotonic(), 0, []
    with tempfile.TemporaryDirectory() as name, busy(given.busy * cores, given.nice):
        os.environ["GPUSHMOO_LOCK_DIR"] = name
        choice = answering_opencl(Path(name) / "cache")
        for number in range(-(-given.trials // len(VARIANTS))):
            n, lines = shard(number, choice, Path(name))
            tried, blamed = tried + n, blamed + lines
            load, minutes = os.getloadavg()[0], (time.monotonic() - began) / 60
            print(*lines, sep="\n", end="\n" * bool(lines))
            said = f"{tried} trials, {len(blamed)} blamed, {minutes:.1f} min, load {load:.0f}"
            print(said, flush=True)
    sys.exit(bool(blamed))


if __name__ == "__main__":
    main()
