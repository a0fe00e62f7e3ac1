"""Measures the index computation of tiles on a CUDA device by its own clock.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    out=reports/reference/nvidia-h200-seeds/benchmarks/index.json
    python experiments/gpu/measure_index.py --out $out

One block on each multiprocessor, of one warp and of the kernel's 512 threads, finds TILES tiles one
after the other (index_computation.cu), by integer division and by the float reciprocal, and goes
through the same loop without finding any. Cycles are those of a block for one tile, the median of
all blocks and REPEATS; the index is the difference of the two loops. If the JSON file is in a
recorded data set, the chapter of the kernel's document shows it.

Needs a CUDA device and CuPy.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
from gpushmoo import __version__

REPEATS = 9
TILES = 1 << 12
# float tiles of 64 × 8 elements in an array of this width; one warp is a part of such a tile.
WIDTH, TILE_X = 8192, 64
BLOCKS = {"one warp": (32, 1), "a block": (64, 8)}
SOURCE = Path(__file__).with_name("index_computation.cu")


def main() -> None:
    """Measure all and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    module = cp.RawModule(code=SOURCE.read_text(), options=("-std=c++17",))
    properties = cp.cuda.runtime.getDeviceProperties(0)
    multiprocessors = properties["multiProcessorCount"]
    device = {"name": properties["name"].decode(), "multiprocessors": multiprocessors}
    found = {
        "device": device | {"driver": cp.cuda.runtime.driverGetVersion()},
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpushmoo": __version__,
        "tiles": TILES,
        "index": [
            _difference(module, variant, block, multiprocessors)
            for variant in ("exact", "reciprocal")
            for block in BLOCKS.values()
        ],
    }
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def _difference(
    module: Any, variant: str, block: tuple[int, int], multiprocessors: int
) -> dict[str, Any]:
    loop = _cycles(module.get_function(variant), block, multiprocessors)
    bare = _cycles(module.get_function("bare"), block, multiprocessors)
    threads = block[0] * block[1]
    found = {"variant": variant, "threads": threads, "warps": threads // 32}
    cycles = {"loop_cycles": loop, "bare_cycles": bare, "index_cycles": loop - bare}
    return found | {name: round(value, 2) for name, value in cycles.items()}


def _cycles(kernel: Any, block: tuple[int, int], multiprocessors: int) -> float:
    """Cycles of a block for one tile; the first launch is not counted."""
    cycles = cp.zeros(multiprocessors, np.int64)
    sink = cp.zeros(multiprocessors * block[0] * block[1], np.uint32)
    tiles_x = WIDTH // TILE_X
    reciprocal = np.float32((1.0 + np.float64(np.float32(1.0e-6))) / tiles_x)
    numbers = (np.uint32(TILES), np.uint32(0), np.uint32(WIDTH), np.uint32(tiles_x), reciprocal)
    samples = []
    for _ in range(REPEATS + 1):
        kernel((multiprocessors,), block, (cycles, sink, *numbers))
        samples.append(cycles.get())
    return float(np.median(samples[1:])) / TILES


if __name__ == "__main__":
    main()
