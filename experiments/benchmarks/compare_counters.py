"""What the model of a device says between its cells and their times, beside hardware counters.

    export PYTHONPATH=workflow/scripts:kernels:experiments/benchmarks
    python experiments/benchmarks/compare_counters.py --counters counters.parquet \
        --record reports/reference/nvidia-h200 --record reports/reference/nvidia-h200-gallery \
        --model device.json --out counted.json

Sectors between L1 and L2, bytes of DRAM and resident warps of every counted launch, as the model
works them out from the shape of the launch, over what was counted. Errors are [launches, median,
95th percentile, largest |predicted/counted − 1|]. Needs no device.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from gpushmoo.core.paths import KERNELS
from gpushmoo.core.space import Cell, Problem
from gpushmoo.model.form import LIMITS, Model
from gpushmoo.model.launches import Describer, DeviceFacts, Launches, code_paths
from gpushmoo.model.limits import UNITS
from gpushmoo.storage.wholefile import write_json
from gpushmoo.workloads.loader import load_kernel
from judge_model import errors

# Less is what the driver moves besides.
LEAST_BYTES = 2**20
# Launches in a sample, about as in the records.
IN_A_SAMPLE = 20
# Quantities by the counters that hold them.
COUNTED = {
    "sectors_loaded": "l2_read_sectors",
    "sectors_stored": "l2_write_sectors",
    "dram_read": "dram_read_bytes",
    "dram_written": "dram_write_bytes",
    "warps": "active_warps",
}


def main() -> None:
    """Compare and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counters", type=Path, required=True)
    parser.add_argument("--record", type=Path, action="append", required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    counters = pd.read_parquet(options.counters).set_index("cell_key", drop=False)
    told = json.loads(options.model.read_text(encoding="utf-8"))["devices"][0]
    predicted = predictions(counters, told, options.record)
    counted = counters.loc[predicted.index]
    off = pd.DataFrame({q: deviations(predicted[q], counted[c]) for q, c in COUNTED.items()})
    content = {
        "device": told["device"],
        "launches": len(counters),
        "quantities": by_kernel(off, counted["kernel"]),
        "limits": limits(predicted["limit"], counted),
    }
    write_json(options.out, content)


def predictions(counters: pd.DataFrame, told: Mapping[str, Any], records: list[Path]) -> Any:
    """What the model says of each counted launch that it can describe, by the cell's key."""
    codes: dict[Any, Any] = {}
    for record in records:
        codes |= code_paths((), record / "code_paths.json")
    workloads = {n: load_kernel(KERNELS / n).workload for n in sorted(set(counters["kernel"]))}
    describer = Describer(workloads, codes, DeviceFacts(**told["facts"]))
    rows = {}
    for key, row in counters.iterrows():
        cell = cell_of(row)
        asked = describer.launch(cell, int(row["resident_blocks"]), IN_A_SAMPLE)
        traffic = describer.traffic(cell)
        if isinstance(asked, dict) and traffic is not None:
            passes = asked["block_bytes"] / max(traffic.load.bytes, traffic.store.bytes)
            sent = passes * asked["blocks"]
            rows[key] = asked | {
                "sectors_loaded": traffic.load.warp_sectors * sent if row["bytes_read"] else 0.0,
                "sectors_stored": traffic.store.warp_sectors * sent,
            }
    found = pd.DataFrame.from_dict(rows, orient="index")
    x, model = Launches.of(found), Model({n: p["value"] for n, p in told["parameters"].items()})
    image = (found["texel_loads"] > 0) | (found["texel_stores"] > 0)
    through = model.sectors_sent(x) * x.blocks
    for side, other in (("sectors_loaded", "texel_loads"), ("sectors_stored", "texel_stores")):
        found[side] = np.where(image & (found[other] > 0), through, found[side])
    found["dram_read"], found["dram_written"] = model.dram_bytes(x)
    found["warps"] = np.minimum(x.resident, np.ceil(x.blocks / x.multiprocessors)) * x.warps
    found["seconds"] = model.seconds(x)
    alone = model.limits(x)
    found["limit"] = np.array(LIMITS)[np.stack([alone[n] for n in LIMITS]).argmax(axis=0)]
    return found


def cell_of(row: Any) -> Cell:
    """The cell of a row of counters."""
    params = (word.split("=") for word in row["params"].split())
    points = tuple(sorted((name, int(value)) for name, value in params))
    problem = Problem(int(row["height"]), int(row["width"]))
    return Cell(row["kernel"], row["dtype"], row["variant"], problem, points, row["cache_state"])


def deviations(predicted: Any, counted: Any) -> Any:
    """Logarithms of predicted over counted; none where next to nothing was counted."""
    least = LEAST_BYTES if "bytes" in str(counted.name) else 1.0
    usable = (counted >= least) & (predicted > 0)
    return np.log(predicted.where(usable) / counted.where(usable))


def by_kernel(off: pd.DataFrame, kernel: Any) -> dict[str, Any]:
    """Errors of each quantity: of all launches, and by kernel."""
    return {
        quantity: {"all": errors(-off[quantity].to_numpy())}
        | {str(k): errors(-mine.to_numpy()) for k, mine in off[quantity].groupby(kernel)}
        for quantity in off
    }


def limits(named: Any, counted: pd.DataFrame) -> dict[str, dict[str, float]]:
    """By the limit that the model names: launches, and the median of what was counted of each unit.

    Units' figures are percent of what they can do at most.
    """
    units = [f"{unit}_percent" for mine in UNITS.values() for unit in mine]
    return {
        str(limit): {"launches": len(rows)} | {u: float(rows[u].median()) for u in units}
        for limit, rows in counted.groupby(named)
    }


if __name__ == "__main__":
    main()
