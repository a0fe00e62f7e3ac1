"""Measures the cost of configurations that crash or hang; checks that each has its own status.

    PYTHONPATH=workflow/scripts python experiments/benchmarks/faulty_cells.py --out faulty.json

One kernel has an axis BAD: right, wrong, crashing in several ways, writing past an end, hanging.
Each space below is swept in a fresh process, and once without its faulty configurations. A crash or
a hang costs the difference of both, divided by their number. The program ends with status 1 if a
configuration has another status than it must have.

Needs a device of any backend. `--backend opencl` measures on a CPU without a GPU.
"""

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

N = 1 << 16
TIMEOUT_S = 2.0
HEADS = {
    "cuda": """
#define KERNEL extern "C" __global__
#define GLOBAL
#define GID (blockIdx.x * blockDim.x + threadIdx.x)
#define TRAP __trap()
""",
    "opencl": """
#define KERNEL __kernel
#define GLOBAL __global
#define GID get_global_id(0)
#define TRAP (*(volatile __global int *)8 = 1)
""",
}
BODY = """
KERNEL void scale(GLOBAL float *y, GLOBAL const float *x, const int n)
{
    const int i = GID;
    if (i >= n) return;
    float value = 2.0f * x[i];
    if (BAD == 1) value += 1.0f;
    if (BAD == 2) y[(size_t)1 << 36] = value;
    if (BAD == 3) TRAP;
    if (BAD == 4) *(GLOBAL volatile float *)((size_t)y + ((size_t)1 << 44)) = value;
    if (BAD == 5 && i < 64) y[n + i] = value;
    if (BAD == 6) while (((volatile GLOBAL float *)x)[0] != 12345.0f) { }
    y[i] = value;
}
"""
RIGHT, WRONG, FAR, TRAPS, WILD, PAST, HANGS = range(7)
EXPECTED = {
    RIGHT: "ok",
    WRONG: "wrong_result",
    FAR: "launch_failed",
    TRAPS: "launch_failed",
    WILD: "launch_failed",
    PAST: "wrong_result",
    HANGS: "timeout",
}
CRASHES = (FAR, TRAPS, WILD)
BLOCKS = [32, 64, 128, 192, 256, 384, 512, 1024]
# Name: the values of BAD and the blocks.
SPACES: dict[str, tuple[list[int], list[int]]] = {
    "a few crashes": ([RIGHT, WRONG, PAST, *CRASHES], [64, 128]),
    "most crash": ([*CRASHES, RIGHT], BLOCKS),
    "a few hang": ([RIGHT, HANGS], [64, 128, 256]),
    "one hangs": ([RIGHT, WRONG, HANGS], [256]),
}


def sweep(backend: str, bad: list[int], blocks: list[int]) -> dict[str, Any]:
    """Sweep one space in this process."""
    import gpushmoo

    x = np.linspace(0, 1, N, dtype=np.float32)
    began = time.monotonic()
    tuned = gpushmoo.tune(
        HEADS[backend] + BODY,
        "scale",
        [np.zeros_like(x), x, np.int32(N)],
        N,
        {"BAD": bad, "block_x": blocks},
        check=gpushmoo.Check([2 * x, None, None]),
        backend=backend,
        progress=False,
        cell_timeout_s=TIMEOUT_S,
    )
    seconds = time.monotonic() - began
    cells = tuned.cells[["BAD", "block_x", "status", "message"]].to_dict("records")
    return {"seconds": seconds, "cells": cells}


def in_process(backend: str, bad: list[int], blocks: list[int]) -> dict[str, Any]:
    """Sweep one space in a fresh Python."""
    job = json.dumps([backend, bad, blocks])
    command = [sys.executable, __file__, "--job", job]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    """Measure all spaces, print a table and write a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=[*HEADS], default="cuda")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(sweep(*json.loads(args.job))))
        return 0
    in_process(args.backend, [RIGHT], [64])  # what the first process compiles and caches
    results, failed = {}, False
    for name, (bad, blocks) in SPACES.items():
        whole = in_process(args.backend, bad, blocks)
        sound = [value for value in bad if value not in (*CRASHES, HANGS)]
        clean = in_process(args.backend, sound, blocks)
        off = [c for c in whole["cells"] if c["status"] != EXPECTED[c["BAD"]]]
        faults = (len(bad) - len(sound)) * len(blocks)
        each_s = (whole["seconds"] - clean["seconds"]) / faults
        failed = failed or bool(off)
        results[name] = {
            "cells": len(whole["cells"]),
            "faults": faults,
            "seconds": whole["seconds"],
            "seconds_without": clean["seconds"],
            "seconds_a_fault": each_s,
            "other_status": off,
        }
        print(
            f"{name}: {faults} faults among {len(whole['cells'])} cells, {whole['seconds']:.1f} s, "
            f"{clean['seconds']:.1f} s without them, {each_s:.2f} s a fault; "
            f"{len(off)} cells have another status than they must have",
            flush=True,
        )
    if args.out is not None:
        found = {
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "backend": args.backend,
            "cell_timeout_s": TIMEOUT_S,
            "spaces": results,
        }
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
