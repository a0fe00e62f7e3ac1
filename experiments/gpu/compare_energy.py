"""Compares joules per gigabyte with Kernel Tuner's NVML observer, cell by cell on one device.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python -m gpushmoo.studies.energy --cells experiments/gpu/energy_cells_h200.json \
        --rounds 3 --window 2 --warm 0.4 --settle 4 --out energy.parquet
    PYTHONPATH=$PYTHONPATH:WHEELS python experiments/gpu/compare_energy.py energy.parquet OUT.json

The cells of `copy2d_coalesced` in the table are measured again by Kernel Tuner, in a process of its
own: its CuPy backend with ``NVMLObserver(["nvml_energy", "nvml_power"])``, which runs a launch for
a second, takes the median of NVML's instantaneous power and multiplies it by a launch's time.
Both use the same data. OUT has each cell's J/GB and GB/s by both, Kendall's tau over the cells of
each type and over all, and of the pairs of cells whose order our rounds decide (the 95 % interval
of the mean log ratio, paired by round, does not hold 0) how many stand in the same order there.

Needs a CUDA device, CuPy, NumPy, PyArrow, nvidia-ml-py, and Kernel Tuner. Where no package can be
fetched, these wheels travel; unpacked into one folder, WHEELS, they need nothing else (attrs,
packaging and typing-extensions come with most environments). 9.5 MB, PyTorch and SciPy not needed:

    pip download --no-deps --only-binary :all: --python-version 3.12 -d wheels kernel_tuner \
        jsonschema jsonschema-specifications referencing rpds-py xmltodict python-constraint2
    for f in wheels/*.whl; do python -m zipfile -e $f WHEELS; done
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from gpushmoo.core.mean_interval import mean_interval

KERNEL = "copy2d_coalesced"
ROOT = Path(__file__).resolve().parents[2]

Row = Mapping[str, Any]


# What is said about both


def per_round(row: Row) -> list[float]:
    """Joules per gigabyte of each round of one of our rows."""
    values = zip(row["window_j"], row["window_s"], row["window_gbs"], strict=True)
    return [joules / seconds / gbs for joules, seconds, gbs in values]


def decided(a: Row, b: Row) -> int:
    """-1 where `a` takes less energy a gigabyte, 1 where `b` does, 0 where rounds do not tell."""
    ratios = [math.log(x / y) for x, y in zip(per_round(a), per_round(b), strict=True)]
    found = mean_interval(ratios)
    if found.low is None or found.high is None or found.low <= 0 <= found.high:
        return 0
    return 1 if found.mean > 0 else -1


def tau(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Kendall's tau-a: of all pairs, the share in the same order less that in the opposite one."""
    signs = [
        (a[0] > b[0]) - (a[0] < b[0]) if a[1] > b[1] else (a[0] < b[0]) - (a[0] > b[0])
        for a, b in combinations(pairs, 2)
        if a[1] != b[1]
    ]
    return sum(signs) / math.comb(len(pairs), 2) if len(pairs) > 1 else None


def agreement(cells: Sequence[Row]) -> dict[str, Any]:
    """How far both agree on the order of the cells, each with our `row` and their figures."""
    both = [(c["row"]["joules_per_gb"], c["kernel_tuner"]["joules_per_gb"]) for c in cells]
    opposed, open_pairs = [], 0
    for a, b in combinations(cells, 2):
        order = decided(a["row"], b["row"])
        theirs = a["kernel_tuner"]["joules_per_gb"] / b["kernel_tuner"]["joules_per_gb"]
        open_pairs += order == 0
        if order * (theirs - 1.0) < 0:
            ours = a["row"]["joules_per_gb"] / b["row"]["joules_per_gb"]
            names = [name_of(c["row"]) for c in (a, b)]
            opposed.append({"cells": names, "gpushmoo": ours - 1.0, "kernel_tuner": theirs - 1.0})
    ratios = [theirs / ours - 1.0 for ours, theirs in both]
    return {
        "cells": len(cells),
        "tau": tau(both),
        "pairs": math.comb(len(cells), 2),
        "not_decided": open_pairs,
        "opposed": opposed,
        "kernel_tuner_over_ours": sorted(ratios),
    }


def name_of(row: Row) -> str:
    return f"{row['dtype']} {row['height']}x{row['width']} {row['params']}"


def compared(rows: Sequence[Row], tuned: Mapping[str, Row]) -> dict[str, Any]:
    """Everything that OUT says of our rows and Kernel Tuner's figures by the cell's key."""
    cells = [
        {"cell": name_of(row), "row": row, "kernel_tuner": tuned[row["cell_key"]]}
        for row in rows
        if row["cell_key"] in tuned
    ]
    by_type = {
        dtype: agreement([c for c in cells if c["row"]["dtype"] == dtype])
        for dtype in dict.fromkeys(c["row"]["dtype"] for c in cells)
    }
    return {"cells": cells, "agreement": {**by_type, "all": agreement(cells)}}


def lines(result: Mapping[str, Any]) -> list[str]:
    """The result for a person."""
    text = [
        f"{c['cell']}: {1e3 * c['row']['joules_per_gb']:.1f} mJ/GB, Kernel Tuner "
        f"{1e3 * c['kernel_tuner']['joules_per_gb']:.1f}; {c['row']['gbs']:.0f} GB/s, "
        f"{c['kernel_tuner']['gbs']:.0f}"
        for c in result["cells"]
    ]
    for name, a in result["agreement"].items():
        known = a["pairs"] - a["not_decided"]
        told = "none" if a["tau"] is None else f"{a['tau']:.2f}"
        text.append(
            f"{name}: tau {told}; of {known} pairs that our rounds decide "
            f"{known - len(a['opposed'])} stand in the same order, of {a['pairs']} in all"
        )
    return text


# Kernel Tuner's side, in a process of its own


def tune(rows: Sequence[Row], seed: int, duration_s: float) -> dict[str, Any]:
    """Kernel Tuner's figures by the cell's key. All rows are of the kernel that is compared."""
    import cupy
    import numpy as np

    # Kernel Tuner imports PyTorch where there is one; that would cost it seconds and serve nothing.
    sys.modules["torch"] = None  # type: ignore[assignment]
    import kernel_tuner
    from gpushmoo.core.space import Problem
    from gpushmoo.workloads.loader import load_kernel
    from kernel_tuner.observers.nvml import NVMLObserver

    folder = load_kernel(ROOT / "kernels" / KERNEL)
    source = (folder.path / "kernel.cu").read_text(encoding="utf-8")
    found: dict[str, Any] = {}
    sizes = dict.fromkeys((r["dtype"], r["height"], r["width"]) for r in rows)
    for dtype, height, width in sizes:
        problem, rng = Problem(height, width), np.random.default_rng([seed, height, width])
        src = cupy.asarray(folder.workload.inputs(problem, dtype, rng)["src"])
        arguments = [cupy.empty_like(src), src, np.uint32(width), np.uint32(height)]
        options = ["-std=c++17", f"-Delement_t={dtype}", "-Dindex_t=unsigned", "-DTILE=32"]
        for row in rows:
            if (row["dtype"], row["height"], row["width"]) != (dtype, height, width):
                continue
            # One call a cell: a space of pairs would need restrictions.
            results, _ = kernel_tuner.tune_kernel(
                kernel_name="copy_element",
                kernel_source=source,
                problem_size=(width, height),
                arguments=arguments,
                tune_params={name: [value] for name, value in params_of(row).items()},
                block_size_names=["block_x", "block_y"],
                grid_div_x=["block_x"],
                grid_div_y=["block_y"],
                lang="CUPY",
                iterations=7,
                compiler_options=options,
                observers=[
                    NVMLObserver(
                        ["nvml_energy", "nvml_power"], device=0, continuous_duration=duration_s
                    )
                ],
                defines={},
                quiet=True,
            )
            result = results[0] if results else {}
            # An error stands in the place of figures, a 0 in that of power that was never read.
            if not isinstance(result.get("nvml_energy"), float) or not result["nvml_energy"]:
                print(f"Kernel Tuner gave no energy of {name_of(row)}: {result}")
                continue
            nbytes = row["bytes_read"] + row["bytes_written"]
            found[row["cell_key"]] = {
                "joules_per_gb": float(result["nvml_energy"]) / nbytes * 1e9,
                "power_w": float(result["nvml_power"]),
                "gbs": nbytes / float(result["time"]) / 1e6,
            }
        del src, arguments
        cupy.get_default_memory_pool().free_all_blocks()
    return {"version": kernel_tuner.__version__, "cells": found}


def params_of(row: Row) -> dict[str, int]:
    parts = (part.partition("=") for part in row["params"].split())
    return {name: int(value) for name, _, value in parts}


def read_rows(table: Path) -> tuple[list[Row], dict[str, Any]]:
    """Our rows with figures of the kernel that is compared, and the table's metadata."""
    read = pq.ParquetFile(table).read()
    rows = [r for r in read.to_pylist() if r["kernel"] == KERNEL and r["message"] is None]
    return rows, json.loads(read.schema.metadata[b"gpushmoo"])


def main() -> int:
    """Run Kernel Tuner on the table's cells, write OUT and print it; 1 where it gave no figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("table", type=Path, help="what gpushmoo.studies.energy wrote")
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--duration", type=float, default=1.0, help="seconds a cell, of the observer"
    )
    parser.add_argument("--tune", action="store_true", help="be Kernel Tuner's process")
    asked = parser.parse_args()
    rows, metadata = read_rows(asked.table)
    if asked.tune:
        told = tune(rows, metadata["plan"]["seed"], asked.duration)
        asked.out.write_text(json.dumps(told), encoding="utf-8")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        theirs = Path(folder, "kernel-tuner.json")
        command = [sys.executable, __file__, str(asked.table.resolve()), str(theirs), "--tune"]
        command += ["--duration", str(asked.duration)]
        done = subprocess.run(command, cwd=ROOT, check=False)
        if done.returncode:
            print(f"Kernel Tuner's process ended with {done.returncode}.")
            return 1
        tuned = json.loads(theirs.read_text(encoding="utf-8"))
    result = compared(rows, tuned["cells"])
    record = {
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel_tuner": tuned["version"],
        "duration_s": asked.duration,
        "gpushmoo": metadata,
        **result,
    }
    asked.out.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print("\n".join(lines(result)))
    return int(not result["cells"])


if __name__ == "__main__":
    sys.exit(main())
