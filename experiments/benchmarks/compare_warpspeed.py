"""What te42kyfo/warpspeed predicts of the cells whose hardware counters are read.

    PYTHONPATH=workflow/scripts python experiments/benchmarks/compare_warpspeed.py \
        --warpspeed CHECKOUT --out warpspeed.json

For the interpreter of an environment that has sympy, numpy and islpy before 2025 (later ones no
longer turn a BasicMap into a Map, which it relies on), and a checkout of
https://github.com/te42kyfo/warpspeed, whose functions are called and not copied. It predicts from
address expressions what moves between L1, L2 and memory, and a time. It knows neither what a cache
holds from the launch before nor persistent blocks, textures, surfaces or shared memory: of the
sample there remain copies, the stencil and the transpose that only use global memory.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpushmoo.core.space import Cell
from gpushmoo.studies.sample import designed_sample

REPOSITORY = "https://github.com/te42kyfo/warpspeed"
# In place of its own figures of a GH200, whose memory and cache are others: multiprocessors, GHz,
# GB/s that memory has by its data sheet, bytes of L2. All else (L1, bandwidth of L2, the sizes of
# what is fetched) is as its author has it.
H200 = {"smCount": 132, "clock": 1.98, "memBW": 4800, "sizeL2": 60 * 2**20, "name": "NVIDIA H200"}
# No kernel here has more than 32 registers, and of fewer it makes 32.
REGISTERS = 32
ITEM_BYTES = {"float": 4, "double": 8, "float4": 16}

Place = tuple[str, str]


@dataclass(frozen=True)
class Accesses:
    """What a thread loads and stores, as columns and rows in terms of its place in the grid.

    `rows` are the elements that each thread makes, one below the other.
    """

    loads: Sequence[Place]
    stores: Sequence[Place]
    block: tuple[int, int]
    rows: int = 1


def copied(cell: Cell) -> Accesses:
    """An element a thread."""
    return Accesses([("tidx", "tidy")], [("tidx", "tidy")], (cell["block_x"], cell["block_y"]))


def stencil(cell: Cell) -> Accesses:
    """The four neighbours of an element; the border, which reads itself, is left out."""
    around = [("tidx-1", "tidy"), ("tidx+1", "tidy"), ("tidx", "tidy-1"), ("tidx", "tidy+1")]
    return Accesses(around, [("tidx", "tidy")], (cell["block_x"], cell["block_y"]))


def transposed(cell: Cell) -> Accesses:
    """ROWS elements of a column, written along a row.

    Here a thread's follow each other; in the kernel TILE / ROWS rows lie between. A block, and each
    of a warp's accesses, touch the same either way.
    """
    n = cell["ROWS"]
    rows = ["tidy" if n == 1 else f"tidy*{n}+{i}" for i in range(n)]
    block = cell["block_x"], cell["TILE"] // n
    return Accesses([("tidx", row) for row in rows], [(row, "tidx") for row in rows], block, n)


DESCRIBED: dict[tuple[str, str], Callable[[Cell], Accesses]] = {
    ("copy2d_coalesced", "element"): copied,
    ("stencil5", "global"): stencil,
    ("transpose", "naive"): transposed,
}


def described(cell: Cell) -> Accesses | None:
    """What the cell's threads access; None where it cannot be told so."""
    of_kernel = DESCRIBED.get((cell.kernel, cell.variant))
    return None if of_kernel is None or cell.dtype not in ITEM_BYTES else of_kernel(cell)


def predict(
    modules: tuple[Any, Any], device: Any, cell: Cell, accesses: Accesses
) -> dict[str, Any]:
    """Bytes of the whole launch between the levels, its seconds, and what limits it.

    `modules` are its `warpspeedkernel` and `predict_metrics`.
    """
    described_by, metrics = modules
    height, width, item = cell.problem.height, cell.problem.width, ITEM_BYTES[cell.dtype]

    def field(name: str, places: Sequence[Place]) -> Any:
        return described_by.Field(name, list(places), item, (width, height, 1), 0)

    kernel = described_by.WarpspeedKernel(
        [field("A", accesses.loads)],
        [field("B", accesses.stores)],
        REGISTERS,
        # With none it takes computing for the limit. The stencil has 4, which limit nothing either.
        flops=accesses.rows,
        fp_type=8 if cell.dtype == "double" else 4,
    )
    elements = height * width
    with contextlib.redirect_stdout(io.StringIO()):
        launch = metrics.LaunchConfig.compute(
            kernel, (*accesses.block, 1), (width, height, 1), (1, accesses.rows, 1), device
        )
        basic = metrics.BasicMetrics.compute(launch, device, kernel)
        found = metrics.DerivedMetrics(launch, basic, device)
    return {
        "l2_load_bytes": found.L2LoadV2 * elements,
        "l2_store_bytes": found.L2Store * elements,
        "dram_load_bytes": found.memLoadV4 * elements,
        "dram_store_bytes": found.memStoreV2 * elements,
        # By the limits. Its other estimate, by latencies, has constants that fit no device here: it
        # is an order of magnitude slower, whatever the shape. Performance is in 10⁹ elements/s.
        "seconds": elements / (found.perfV4 * 1e9),
        "limit": ("flops", "l1", "l2", "dram")[found.limV4],
        "l1_cycles_per_warp_element": found.L1Cycles,
        "blocks_per_sm": launch.blocksPerSM,
    }


def row(cell: Cell, predicted: dict[str, Any]) -> dict[str, Any]:
    """The cell beside what is predicted of it."""
    return {
        "kernel": cell.kernel,
        "dtype": cell.dtype,
        "variant": cell.variant,
        "height": cell.problem.height,
        "width": cell.problem.width,
        "cache_state": cell.cache_state,
        "params": dict(cell.params),
        **predicted,
    }


def main() -> None:
    """Write the predictions of all described cells, by the cells' keys."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warpspeed", type=Path, required=True, help="a checkout of it")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    asked = parser.parse_args()
    if not (asked.warpspeed / "warpspeed" / "predict_metrics.py").is_file():
        parser.error(f"--warpspeed: '{asked.warpspeed}' is no checkout of {REPOSITORY}.")
    sys.path.insert(0, str(asked.warpspeed / "warpspeed"))
    import devices
    import predict_metrics
    import warpspeedkernel

    device = devices.DeviceHopperH200()
    replaced = {name: getattr(device, name) for name in H200}
    for name, value in H200.items():
        setattr(device, name, value)
    cells = {}
    for sampled in designed_sample():
        if accesses := described(sampled.cell):
            found = predict((warpspeedkernel, predict_metrics), device, sampled.cell, accesses)
            cells[sampled.cell.key] = row(sampled.cell, found)
            print(sampled.cell, file=sys.stderr)
    head = ["git", "-C", str(asked.warpspeed), "rev-parse", "HEAD"]
    commit = subprocess.run(head, capture_output=True, encoding="utf-8", check=True).stdout.strip()
    figures = {
        name: getattr(device, name)
        for name in dir(device)
        if not name.startswith("_") and not callable(getattr(device, name))
    }
    content = {
        "provenance": {
            "repository": REPOSITORY,
            "commit": commit,
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("islpy", "numpy", "sympy")},
        },
        "device": figures,
        "replaced_figures": replaced,
        "cells": cells,
    }
    text = json.dumps(content, indent=1, sort_keys=True)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
