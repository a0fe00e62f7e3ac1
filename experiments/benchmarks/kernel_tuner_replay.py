"""Kernel Tuner's strategies on recorded cells: in which order they measure them.

    python experiments/benchmarks/kernel_tuner_replay.py < groups.json > orders.json

For `search_replay.py`, which runs this with the interpreter of an environment that has Kernel
Tuner. It knows nothing of this project: what was recorded is exported as Kernel Tuner's cache
files, and its own simulation mode looks the medians up there. It gets only what a user knows in
advance: the axes, and which cells are valid.
"""

import contextlib
import io
import json
import random
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kernel_tuner
import numpy as np


def order_of(group: dict[str, Any], strategy: str, seed: int) -> list[int]:
    """The places of the cells that a strategy measures, in its order, each once."""
    cache = json.loads(Path(group["cache"]).read_text(encoding="utf-8"))
    names = cache["tune_params_keys"]
    places = {tuple(cell): place for place, cell in enumerate(group["cells"])}
    # The strategies draw from the generators that all share, and take no others.
    random.seed(seed)
    np.random.seed(seed)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, _ = kernel_tuner.tune_kernel(
            cache["kernel_name"],
            "__global__ void recorded() {}",
            tuple(cache["problem_size"]),
            [],
            cache["tune_params"],
            restrictions=list(group["restrictions"]),
            strategy=strategy,
            strategy_options={"max_fevals": group["most"]},
            cache=group["cache"],
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
        orders[group["name"]] = {
            strategy: [order_of(group, strategy, seed) for seed in asked["seeds"]]
            for strategy in asked["strategies"]
        }
        print(group["name"], file=sys.stderr)
    took_s = time.process_time() - before
    json.dump({"version": version("kernel_tuner"), "seconds": took_s, "orders": orders}, sys.stdout)


if __name__ == "__main__":
    main()
