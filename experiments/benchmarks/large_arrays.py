"""What does a call of `tune` cost beside measuring if its arrays are large, and what memory?

    PYTHONPATH=workflow/scripts python experiments/benchmarks/large_arrays.py \
        --backend cuda --out OUT.json

An input and an output of 1024 MB (``--mb``, of 2^20 bytes) each, and what is expected. By default
all rows of a backend are measured (``--rows``): bytes compared exactly (``exact``), floats within a
limit (``rtol``), on CUDA also bytes in CuPy's arrays (``cupy``), and 2^32 + 17 bytes (``wide``).

Each row has a Python process for itself: calls of small arrays, the first of which opens the
device, then the call. Its seconds without those of launches that are samples, and without a small
call's, are given for each GB (2^30 bytes) of the three arrays. ``memory`` is the most memory that
this process and the measuring process have had during the call, shared pages once, as a multiple of
the arrays. If the device is a CPU, its buffers are part of it. ``--elements`` names numbers of
elements instead of MB. ``--overflow`` gives the kernel an index of 32 bits, a fault that must be
found if there are more than 2^32 elements.
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
# The rows of each backend; the CPU that serves as an OpenCL device may have no room for the last.
ROWS = {"opencl": ("exact", "rtol"), "cuda": ("exact", "rtol", "cupy", "wide")}
WIDE = 2**32 + 17
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


def arrays(row: str, n: int) -> tuple[Any, Any, Any]:
    """Output, input and what is expected; of CuPy made on the GPU, without a copy on the host."""
    made: Any = np
    if row == "cupy":
        import cupy

        made = cupy
    kind = np.float32 if row == "rtol" else np.uint8
    x = made.tile(made.arange(251, dtype=kind), -(-n // 251))[:n]
    return made.zeros(n, kind), x, x + kind(1)


def call(given: argparse.Namespace, row: str, n: int) -> dict[str, Any]:
    """What a call needs, and its result."""
    import gpushmoo

    limit = {"rtol": 1e-5} if row == "rtol" else {}
    y, x, expected = arrays(row, n)
    name, index = "float" if limit else "unsigned char", INDEXES[given.backend][given.overflow]
    head = f"#define T {name}\n#define INDEX {index}\n"
    looks = Memory()
    looks.start()
    begin = time.perf_counter()
    result = gpushmoo.tune(
        head + HEADS[given.backend] + BODY,
        "inc",
        {"y": y, "x": x, "n": np.uint64(n)},
        n,
        {"block_x": [256]},
        launch=gpushmoo.LaunchConfig(bytes_moved=f"{2 * x.itemsize} * n"),
        check=gpushmoo.Check({"y": expected}, **limit),
        backend=given.backend,
        min_samples=6,
        max_samples=6,
        progress=False,
    )
    seconds = time.perf_counter() - begin
    most = looks.stop()
    return {"call_s": seconds, "nbytes": 3 * int(x.nbytes), "most": most, "result": result}


def measured(given: argparse.Namespace, row: str, n: int) -> dict[str, Any]:
    """One row of the table."""
    # The first opens the device.
    small_s = min(call(given, row, SMALL)["call_s"] for _ in range(3))
    found = call(given, row, n)
    result, nbytes = found["result"], found["nbytes"]
    cell = result.cells.iloc[0]
    # Samples and the launches before them are the measuring itself.
    launches = (len(cell["samples_s"]) if "samples_s" in cell else 6) + 1
    sampled_s = launches * float(cell["median_s"]) if cell["status"] == "ok" else 0.0
    return {
        "row": row,
        "device": result.provenance[0]["device"]["name"],
        "elements": n,
        "gb": nbytes / 2**30,
        "status": str(cell["status"]),
        "message": cell["message"] if isinstance(cell["message"], str) else None,
        "call_s": found["call_s"],
        "beside_s_per_gb": (found["call_s"] - small_s - sampled_s) / (nbytes / 2**30),
        "memory": found["most"] / nbytes,
    }


def sizes(given: argparse.Namespace, row: str) -> list[int]:
    """The numbers of elements of a row."""
    if row == "wide":
        return [WIDE]
    return given.elements or [mb * 2**20 // (4 if row == "rtol" else 1) for mb in given.mb]


def main() -> None:
    """Measure each size in a separate process, then print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--backend", choices=sorted(HEADS), default="opencl")
    parser.add_argument("--rows", choices=ROWS["cuda"], nargs="*")
    parser.add_argument("--mb", type=int, nargs="*", default=[1024])
    parser.add_argument("--elements", type=int, nargs="*", default=[])
    parser.add_argument("--overflow", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(measured(given, given.rows[0], given.one)))
        return
    rows: list[dict[str, Any]] = []
    print("row    elements       arrays    call  s/GB beside  memory  status")
    for name in given.rows or ROWS[given.backend]:
        for n in sizes(given, name):
            command = [sys.executable, __file__, "--backend", given.backend, "--rows", name]
            command += ["--one", str(n), *["--overflow"] * given.overflow]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            row = json.loads(done.stdout.splitlines()[-1])
            rows.append(row)
            print(
                f"{name:<6} {n:<13,d} {row['gb']:5.2f} GB {row['call_s']:6.1f} s "
                f"{row['beside_s_per_gb']:8.2f} {row['memory']:8.2f} x  {row['status']}: "
                f"{row['message'] or ''}",
                flush=True,
            )
            # A later row may need more memory than there is.
            if given.out is not None:
                found = {"backend": given.backend, "overflow": given.overflow, "rows": rows}
                write_json(given.out, found)


if __name__ == "__main__":
    main()
