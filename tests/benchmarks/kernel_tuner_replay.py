"""Kernel Tuner's strategies on recorded cells: in which order they measure them.

    python tests/benchmarks/kernel_tuner_replay.py < groups.json > orders.json

For `search_replay.py`, which runs this with the interpreter of an environment that has Kernel
Tuner. It knows nothing of this project. Recorded medians are its cache file, and its own simulation
mode looks them up. Nothing is told it that it could not know: its axes, which cells are valid.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kernel_tuner
import numpy as np

KERNEL = "recorded"


def cache_of(group: dict[str, Any]) -> dict[str, Any]:
    """Kernel Tuner's cache file of a group: every cell with its median, in milliseconds."""
    names = list(group["axes"])
    cells = {
        ",".join(map(str, cell)): {
            **dict(zip(names, cell, strict=True)),
            "time": seconds * 1e3,
            **dict.fromkeys(("compile_time", "verification_time", "benchmark_time"), 0.0),
            **dict.fromkeys(("strategy_time", "framework_time"), 0.0),
            "timestamp": "2026-01-01 00:00:00+00:00",
        }
        for cell, seconds in zip(group["cells"], group["seconds"], strict=True)
    }
    return {
        "schema_version": "1.0.0",
        "device_name": "recorded",
        "kernel_name": KERNEL,
        "problem_size": [1],
        "tune_params_keys": names,
        "tune_params": group["axes"],
        "objective": "time",
        "cache": cells,
    }


def order_of(group: dict[str, Any], file: Path, strategy: str, seed: int) -> list[int]:
    """The places of the cells that a strategy measures, in its order, each once."""
    names = list(group["axes"])
    places = {tuple(cell): place for place, cell in enumerate(group["cells"])}
    # The strategies draw from the generators that all share, and take no others.
    random.seed(seed)
    np.random.seed(seed)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, _ = kernel_tuner.tune_kernel(
            KERNEL,
            "__global__ void recorded() {}",
            1,
            [],
            group["axes"],
            restrictions=list(group["restrictions"]),
            strategy=strategy,
            strategy_options={"max_fevals": group["most"]},
            cache=str(file),
            simulation_mode=True,
            lang="CUDA",
            quiet=True,
        )
    return list(dict.fromkeys(places[tuple(cell[name] for name in names)] for cell in found))


def main() -> None:
    """Orders of all groups and strategies, a list for each seed, and what they took."""
    asked = json.load(sys.stdin)
    orders: dict[str, dict[str, list[list[int]]]] = {}
    before = time.process_time()
    for group in asked["groups"]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "cache.json"
            file.write_text(json.dumps(cache_of(group)), encoding="utf-8")
            orders[group["name"]] = {
                strategy: [order_of(group, file, strategy, seed) for seed in asked["seeds"]]
                for strategy in asked["strategies"]
            }
        print(group["name"], file=sys.stderr)
    took_s = time.process_time() - before
    json.dump({"version": version("kernel_tuner"), "seconds": took_s, "orders": orders}, sys.stdout)


if __name__ == "__main__":
    main()
