"""Kernel Tuner's side of compare_kernel_tuner.py: one sweep, in a process of its own.

    python tests/gpu/kernel_tuner_sweep.py OUT.json --axis 4 64 2 --size 8192 --verification host

Its CuPy backend is used, with no observer that measures anything, no console output and no PyTorch.

* ``none``: as Kernel Tuner is by default. It hands the parameters to the compiler, so that every
  configuration is compiled, and verifies nothing.

In the other modes ``defines={}`` keeps the source the same, so that it is compiled once:

* ``host``: verification by ``answer=`` as documented, but word by word, which takes a tenth of the
  time of the default `numpy.allclose`; the output is poisoned, fetched and compared each time;
* ``device``: verification that Kernel Tuner does not offer and a user would have to write: nothing
  is moved; the output is poisoned and compared where it is, by a kernel like gpushmoo's own.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cupy
import numpy as np

# Kernel Tuner imports PyTorch where there is one; that would cost it seconds and serve nothing.
sys.modules["torch"] = None  # type: ignore[assignment]
import kernel_tuner  # noqa: E402
from kernel_tuner.observers import BenchmarkObserver  # noqa: E402

del sys.modules["torch"]

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "kernels/copy2d_coalesced/kernel.cu"
SEED = 20091017
THREAD_LIMIT = 1024

SETTINGS = {
    "lang": "CUPY",
    "strategy": "brute_force",
    "iterations": 7,
    "restrictions": [f"block_x*block_y <= {THREAD_LIMIT}"],
    "block_size_names": ["block_x", "block_y"],
    "grid_div_x": ["block_x"],
    "grid_div_y": ["block_y"],
    "compiler_options": ["-std=c++17", "-Delement_t=float", "-DTILE=32"],
    "quiet": True,
}

_COMPARE = """
extern "C" __global__ void compare(const unsigned int *a, const unsigned int *b,
                                   unsigned long long n, unsigned int *differ)
{
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += step)
        if (a[i] != b[i])
            *differ = 1;
}
"""


def same_words(answer: list[Any], result: list[Any], atol: float | None = None) -> bool:
    """Whether the output has the answer's bits; Kernel Tuner passes `atol` by name."""
    return np.array_equal(answer[0].view(np.uint32), result[0].view(np.uint32))


class DeviceCheck(BenchmarkObserver):
    """Compares the output with the answer on the device, and poisons it for the next check."""

    def __init__(self, answer: Any, output: Any) -> None:
        self._answer, self._output = answer, output
        self._kernel = cupy.RawKernel(_COMPARE, "compare")
        self._differ = cupy.zeros(1, dtype=np.uint32)
        self._blocks = 8 * cupy.cuda.Device().attributes["MultiProcessorCount"]

    def verify(self, answer: Any, result: Any, atol: float | None = None) -> bool:
        """Launched on the null stream, which waits for Kernel Tuner's."""
        self._differ.fill(0)
        args = (self._answer, self._output, np.uint64(self._output.size), self._differ)
        self._kernel((self._blocks,), (512,), args)
        return not self._differ.get()[0]

    def get_results(self) -> dict[str, Any]:
        """Called once after a configuration's last launch, which left the right answer behind."""
        self._output.fill(np.nan)
        return {}


def unverified(src: Any) -> tuple[list[Any], dict[str, Any]]:
    """Buffers that Kernel Tuner copies to the device once, and its defaults."""
    return [np.full_like(src, np.nan), src], {}


def on_host(src: Any) -> tuple[list[Any], dict[str, Any]]:
    """Buffers and verification by ``answer=``: Kernel Tuner restores the poison each time."""
    options = {"answer": [src, None, None, None], "verify": same_words, "defines": {}}
    return [np.full_like(src, np.nan), src], options


def on_device(src: Any) -> tuple[list[Any], dict[str, Any]]:
    """Buffers that stay on the device; Kernel Tuner is told that there is nothing to fetch."""
    source = cupy.asarray(src)
    output = cupy.full_like(source, np.nan)
    check = DeviceCheck(source, output)
    options = {"answer": [None] * 4, "verify": check.verify, "observers": [check], "defines": {}}
    return [output, source], options


def sweep(values: list[int], size: int, verification: str, cache: Path) -> dict[str, Any]:
    """Tune, and return what compare_kernel_tuner.py reads."""
    src = np.random.default_rng(SEED).random((size, size), dtype=np.float32)
    make = {"none": unverified, "host": on_host, "device": on_device}[verification]
    buffers, options = make(src)
    results, env = kernel_tuner.tune_kernel(
        kernel_name="copy_element",
        kernel_source=SOURCE.read_text(),
        problem_size=(size, size),
        arguments=[*buffers, np.uint64(size), np.uint64(size)],
        tune_params={"block_x": values, "block_y": values},
        cache=str(cache),
        **{**SETTINGS, **options},
    )
    return {
        "device": env["device_name"],
        "versions": {
            "kernel_tuner": kernel_tuner.__version__,
            "cupy": cupy.__version__,
            "numpy": version("numpy"),
            "python": platform.python_version(),
        },
        "settings": {**SETTINGS, "verification": verification, "cache": True},
        # Where Kernel Tuner itself says that the time went, in milliseconds.
        "totals_ms": {k: v for k, v in env.items() if k.startswith(("total_", "overhead_"))},
        "cells": [
            {"block_x": r["block_x"], "block_y": r["block_y"], "times_ms": r["times"]}
            for r in results
            if "__error__" not in r
        ],
    }


def main() -> None:
    """Sweep as the command line says, with Kernel Tuner's cache file beside OUT."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--axis", type=int, nargs=3, required=True, metavar=("FROM", "TO", "STEP"))
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--verification", choices=("none", "host", "device"), required=True)
    args = parser.parse_args()
    first, last, step = args.axis
    values = list(range(first, last + 1, step))
    cache = args.out.with_name("kernel-tuner-cache.json")
    args.out.write_text(json.dumps(sweep(values, args.size, args.verification, cache)))


if __name__ == "__main__":
    main()
