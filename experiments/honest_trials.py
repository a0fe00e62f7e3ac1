"""Tries honest kernels on a busy machine: how many does a trial on new inputs blame?

    make honest-trials TRIALS=2000 BUSY=6

Each shard has a hundred variants that compete with nobody, so that each of them is tried. They are
measured by the real job in a measuring process, while BUSY processes a core compute. Both inherit
this program's niceness and session, so that the scheduler treats them alike; each shard's line has
the nicenesses that were read, and a difference ends the program with status 2. Kernels are floats,
integers or atomics on an output that has its content again before each launch. Ends with status 1
if a cell is not ``ok``, and prints its message. Ended early (Ctrl-C, SIGTERM), it prints the count
so far. Needs an OpenCL runtime.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
import os
from pathlib import Path

import numpy as np
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Launch

KIND = "{kind}"
# Each process that loads this says how the scheduler treats it.
Path({terms!r}, str(os.getpid())).write_text(f"{{os.nice(0)}} {{os.getsid(0)}}")

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


Terms = tuple[int, int]


@contextmanager
def busy(processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start as many processes that compute. They inherit this one's niceness and session."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield running
    finally:
        for one in running:
            one.kill()
            one.wait()


def terms_of_busy(running: list[subprocess.Popen[bytes]]) -> set[Terms]:
    """Niceness and session of each process that computes."""
    return {(os.getpriority(os.PRIO_PROCESS, p.pid), os.getsid(p.pid)) for p in running}


def terms_of_measured(folder: Path) -> set[Terms]:
    """Niceness and session of each process that loaded the kernel, but for this one."""
    files = [p for p in folder.iterdir() if p.name != str(os.getpid())]
    words = [p.read_text(encoding="utf-8").split() for p in files]
    return {(int(niceness), int(session)) for niceness, session in words}


def shard(number: int, choice: DeviceChoice, folder: Path) -> tuple[int, list[str]]:
    """How many variants were measured, and a line for each that is not ``ok``."""
    kind = tuple(KINDS)[number % len(KINDS)]
    kernel = folder / kind
    kernel.mkdir(exist_ok=True)
    (kernel / "kernel.cl").write_text(KERNEL, encoding="utf-8")
    terms = folder / "terms"
    terms.mkdir(exist_ok=True)
    workload = WORKLOAD.format(kind=kind, variants=VARIANTS, terms=str(terms))
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


@dataclass
class Trials:
    """The count so far."""

    busy: int
    trials: int = 0
    blamed: int = 0
    niceness_busy: list[int] = field(default_factory=list)
    niceness_measured: list[int] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def note(self, busy: set[Terms], measured: set[Terms]) -> None:
        """Keep the nicenesses, and end the program if the scheduler prefers anyone."""
        self.niceness_busy = sorted({niceness for niceness, _ in busy})
        self.niceness_measured = sorted({niceness for niceness, _ in measured})
        if not measured or len(busy | measured) != 1:
            print(f"Unequal (niceness, session): busy {busy}, measured {measured}", flush=True)
            sys.exit(2)

    def __str__(self) -> str:
        own = {key: value for key, value in vars(self).items() if key != "began"}
        return json.dumps(own | {"seconds": round(time.monotonic() - self.began)})


def main() -> None:
    """Read the command line; exit status 1 if a kernel is blamed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=2000, help="at least as many")
    parser.add_argument("--busy", type=int, default=6, help="busy processes a core")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cores, so_far = os.cpu_count() or 1, Trials(given.busy)
    with tempfile.TemporaryDirectory() as name, busy(given.busy * cores) as running:
        os.environ["GPUSHMOO_LOCK_DIR"] = name
        choice = answering_opencl(Path(name) / "cache")
        try:
            for number in range(-(-given.trials // len(VARIANTS))):
                n, lines = shard(number, choice, Path(name))
                so_far.trials, so_far.blamed = so_far.trials + n, so_far.blamed + len(lines)
                so_far.note(terms_of_busy(running), terms_of_measured(Path(name) / "terms"))
                print(*lines, f"{so_far}, load {os.getloadavg()[0]:.0f}", sep="\n", flush=True)
        finally:
            print(so_far, flush=True)
    sys.exit(bool(so_far.blamed))


if __name__ == "__main__":
    main()
