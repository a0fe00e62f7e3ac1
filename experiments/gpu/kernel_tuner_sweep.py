"""Kernel Tuner's side of compare_kernel_tuner.py: one sweep, in a separate process.

    python experiments/gpu/kernel_tuner_sweep.py OUT.json --kernel transpose --size 8192 \
        --axes '{"TILE": [16, 32], "ROWS": [4], "PAD": [0, 1], "block_x": [16]}' --verification host

Its CuPy backend is used, with no observer that measures anything, no console output and no PyTorch.
By default it hands all parameters to the compiler, so that every configuration is compiled.

* ``none``: as Kernel Tuner is by default; nothing is verified.
* ``host``: verification by ``answer=`` as documented, but word by word, which takes a tenth of the
  time of the default `numpy.allclose`; the output is poisoned, fetched and compared each time.
* ``device``: verification that Kernel Tuner does not offer and a user would have to write: nothing
  is moved; the output is poisoned and compared where it is, by a kernel like gpushmoo's own.

In the last two a kernel that no axis is compiled into is compiled once: ``defines={}``.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
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
SEED = 20091017
THREAD_LIMIT = 1024

Axes = dict[str, list[int]]


@dataclass(frozen=True)
class Tuned:
    """One of our kernels as Kernel Tuner gets it.

    A block moves a `tile` (x, y) of the array; both names are parameters. The rest of `parameters`
    follows from our axes, held together by `restrictions`. `one_build`: no axis is compiled in.
    """

    entry: str
    tile: tuple[str, str]
    parameters: Callable[[Axes], Axes]
    restrictions: tuple[str, ...]
    answer: Callable[[Any], Any]
    definitions: tuple[str, ...] = ()
    one_build: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """Return the arguments of `tune_kernel` that do not depend on the verification."""
        return {
            "lang": "CUPY",
            "strategy": "brute_force",
            "iterations": 7,
            "restrictions": [f"block_x*block_y <= {THREAD_LIMIT}", *self.restrictions],
            "block_size_names": ["block_x", "block_y"],
            "grid_div_x": [self.tile[0]],
            "grid_div_y": [self.tile[1]],
            "compiler_options": [
                "-std=c++17",
                "-Delement_t=float",
                "-Dindex_t=unsigned",
                *self.definitions,
            ],
            "quiet": True,
        }


def with_block_y(axes: Axes) -> Axes:
    """The block's height must be a parameter: TILE / ROWS of any pair that divides."""
    pairs = ((tile, rows) for tile in axes["TILE"] for rows in axes["ROWS"])
    return {**axes, "block_y": sorted({tile // rows for tile, rows in pairs if tile % rows == 0})}


TUNED = {
    "copy2d_coalesced": Tuned(
        entry="copy_element",
        tile=("block_x", "block_y"),
        parameters=lambda axes: axes,
        restrictions=(),
        answer=lambda src: src,
        definitions=("-DTILE=32",),
        one_build=True,
    ),
    "transpose": Tuned(
        entry="transpose_tile",
        tile=("TILE", "TILE"),
        parameters=with_block_y,
        restrictions=("block_y*ROWS == TILE", "TILE % block_x == 0"),
        answer=lambda src: np.ascontiguousarray(src.T),
    ),
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


def unverified(src: Any, answer: Any) -> tuple[list[Any], dict[str, Any]]:
    """Buffers that Kernel Tuner copies to the device once, and its defaults."""
    return [np.full_like(answer, np.nan), src], {}


def on_host(src: Any, answer: Any) -> tuple[list[Any], dict[str, Any]]:
    """Buffers and verification by ``answer=``: Kernel Tuner restores the poison each time."""
    options = {"answer": [answer, None, None, None], "verify": same_words}
    return [np.full_like(answer, np.nan), src], options


def on_device(src: Any, answer: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return buffers that stay on the device, and options to fetch nothing from them."""
    expected = cupy.asarray(answer)
    output = cupy.full_like(expected, np.nan)
    check = DeviceCheck(expected, output)
    options = {"answer": [None] * 4, "verify": check.verify, "observers": [check]}
    return [output, cupy.asarray(src)], options


def sweep(kernel: str, axes: Axes, size: int, verification: str, cache: Path) -> dict[str, Any]:
    """Tune, and return what compare_kernel_tuner.py reads."""
    tuned = TUNED[kernel]
    src = np.random.default_rng(SEED).random((size, size), dtype=np.float32)
    make = {"none": unverified, "host": on_host, "device": on_device}[verification]
    buffers, options = make(src, tuned.answer(src))
    if tuned.one_build and verification != "none":
        options["defines"] = {}
    results, env = kernel_tuner.tune_kernel(
        kernel_name=tuned.entry,
        kernel_source=(ROOT / "kernels" / kernel / "kernel.cu").read_text(),
        problem_size=(size, size),
        arguments=[*buffers, np.uint32(size), np.uint32(size)],
        tune_params=tuned.parameters(axes),
        cache=str(cache),
        **tuned.settings,
        **options,
    )
    return {
        "device": env["device_name"],
        "versions": {
            "kernel_tuner": kernel_tuner.__version__,
            "cupy": cupy.__version__,
            "numpy": version("numpy"),
            "python": platform.python_version(),
        },
        "settings": {**tuned.settings, "verification": verification, "cache": True},
        # Where Kernel Tuner itself says that the time went, in milliseconds.
        "totals_ms": {k: v for k, v in env.items() if k.startswith(("total_", "overhead_"))},
        "cells": [
            {**{axis: r[axis] for axis in axes}, "times_ms": r["times"]}
            for r in results
            if "__error__" not in r
        ],
    }


def main() -> None:
    """Sweep as the command line says, with Kernel Tuner's cache file beside OUT."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--kernel", choices=sorted(TUNED), required=True)
    parser.add_argument("--axes", type=json.loads, required=True, help="values by name, as JSON")
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--verification", choices=("none", "host", "device"), required=True)
    args = parser.parse_args()
    cache = args.out.with_name("kernel-tuner-cache.json")
    told = sweep(args.kernel, args.axes, args.size, args.verification, cache)
    args.out.write_text(json.dumps(told))


if __name__ == "__main__":
    main()
