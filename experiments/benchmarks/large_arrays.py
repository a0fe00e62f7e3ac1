"""What does a call of `tune` cost beside measuring if its arrays are large, and what memory?

    PYTHONPATH=workflow/scripts python experiments/benchmarks/large_arrays.py \
        --backend opencl --mb 64 256 1024 --out OUT.json

An input and an output of so many MB (2^20 bytes) each of one-byte elements, and what is expected.
For each size, in a Python of its own: a call of small arrays, which opens the device, then the call
itself. Its seconds without those of launches that are samples, and without a small call's, are
given for each GB (2^30 bytes) of the three arrays; beside them the most memory that this process
and the measuring process have had, shared pages once, as a multiple of the arrays. Of a device that
is a CPU its buffers are among it. ``--cupy`` passes arrays that are on the GPU, ``--rtol`` compares
floats within a limit, and ``--elements`` names numbers of elements in place of MB. ``--overflow``
gives the kernel an index of 32 bits, which must be found if there are 2^32 elements or more.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from gpushmoo.storage.wholefile import write_json

BODY = """
    const INDEX i = (INDEX)BLOCK * SIZE + THREAD;
    if (i < n)
        y[i] = x[i] + (T)1;
}
"""
HEADS = {
    "opencl": """
#define BLOCK get_group_id(0)
#define SIZE get_local_size(0)
#define THREAD get_local_id(0)
__kernel void inc(__global T *y, __global const T *x, const ulong n)
{""",
    "cuda": """
#define BLOCK blockIdx.x
#define SIZE blockDim.x
#define THREAD threadIdx.x
extern "C" __global__ void inc(T *y, const T *x, const unsigned long long n)
{""",
}
INDEXES = {"opencl": ("ulong", "uint"), "cuda": ("unsigned long long", "unsigned int")}
SMALL = 1000
# Seconds between two looks at the memory, of which one stops the process for milliseconds.
LOOK_S = 0.25


class Memory(threading.Thread):
    """Looks at the memory of this process and its children, and keeps the most of it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self._over = 0, threading.Event()

    def run(self) -> None:
        """Look until `stop`."""
        while not self._over.wait(LOOK_S):
            self.most = max(self.most, sum(map(proportional_bytes, family(os.getpid()))))

    def stop(self) -> int:
        """Stop looking; the most that was seen."""
        self._over.set()
        self.join()
        return self.most


def family(process: int) -> list[int]:
    """A process and all that descend from it."""
    found = [process]
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = task.read_text(encoding="ascii").split()
        except OSError:
            continue
        found += [each for child in children for each in family(int(child))]
    return found


def proportional_bytes(process: int) -> int:
    """The process's memory, of shared pages its part."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    lines = (line.split() for line in text.splitlines())
    return next((1024 * int(words[1]) for words in lines if words[0] == "Pss:"), 0)


def call(given: argparse.Namespace, n: int) -> tuple[float, int, Any]:
    """The seconds of a call, bytes of its arrays, and its result."""
    import gpushmoo

    # The element, and what an expected value may differ by.
    kind, name = (np.float32, "float") if given.rtol else (np.uint8, "unsigned char")
    limit = {"rtol": 1e-5} if given.rtol else {}
    x: Any = np.resize(np.arange(251, dtype=kind), n)
    expected = x + kind(1)
    y: Any = np.zeros(n, kind)
    if given.cupy:
        import cupy

        x, y, expected = (cupy.asarray(one) for one in (x, y, expected))
    head = f"#define T {name}\n#define INDEX {INDEXES[given.backend][given.overflow]}\n"
    begin = time.perf_counter()
    result = gpushmoo.tune(
        head + HEADS[given.backend] + BODY,
        "inc",
        {"y": y, "x": x, "n": np.uint64(n)},
        n,
        {"block_x": [256]},
        expect={"y": expected},
        moved=f"{2 * x.itemsize} * n",
        backend=given.backend,
        min_samples=6,
        max_samples=6,
        progress=False,
        **limit,
    )
    return time.perf_counter() - begin, 3 * int(x.nbytes), result


def measured(given: argparse.Namespace, n: int) -> dict[str, Any]:
    """One row of the table."""
    call(given, SMALL)
    small_s, _, _ = call(given, SMALL)
    looks = Memory()
    looks.start()
    call_s, nbytes, result = call(given, n)
    most = looks.stop()
    cell = result.cells.iloc[0]
    # Samples and the launches before them are the measuring itself.
    launches = (len(cell["samples_s"]) if "samples_s" in cell else 6) + 1
    sampled_s = launches * float(cell["median_s"]) if cell["status"] == "ok" else 0.0
    return {
        "elements": n,
        "gb": nbytes / 2**30,
        "status": str(cell["status"]),
        "message": cell["message"],
        "call_s": call_s,
        "beside_s_per_gb": (call_s - small_s - sampled_s) / (nbytes / 2**30),
        "memory": most / nbytes,
    }


def main() -> None:
    """Measure each size in a process of its own, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--backend", choices=sorted(HEADS), default="opencl")
    parser.add_argument("--mb", type=int, nargs="*", default=[64, 256, 1024])
    parser.add_argument("--elements", type=int, nargs="*", default=[])
    parser.add_argument("--cupy", action="store_true")
    parser.add_argument("--rtol", action="store_true")
    parser.add_argument("--overflow", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(measured(given, given.one), default=str))
        return
    width, rows = 4 if given.rtol else 1, []
    own = [f"--{flag}" for flag in ("cupy", "rtol", "overflow") if getattr(given, flag)]
    print("elements       arrays    call  s/GB beside  memory  status")
    for n in given.elements or [mb * 2**20 // width for mb in given.mb]:
        command = [sys.executable, __file__, "--backend", given.backend, *own, "--one", str(n)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        row = json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
        print(
            f"{n:<13,d} {row['gb']:5.2f} GB {row['call_s']:6.1f} s {row['beside_s_per_gb']:8.2f} "
            f"{row['memory']:8.2f} x  {row['status']}: {row['message'] or ''}",
            flush=True,
        )
    if given.out is not None:
        write_json(given.out, {"backend": given.backend, "asked": own, "rows": rows})


if __name__ == "__main__":
    main()
