"""Aggregates many generated rows, and prints rows, seconds and peak memory.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters:tests:tests/unit:tests/workflow
    python experiments/benchmarks/aggregate_scale.py --rows 10000000

Generates shards of a sweep of one kernel (two dtypes, so two partitions) on --devices devices of
one name: every cell is measured by each of them. Each shard has seven samples a cell and
--provenance bytes of readings. Then `aggregate` runs in a process of its own, whose writable memory
is limited to --limit-gib by the kernel (RLIMIT_DATA), and whose peak resident memory (VmHWM) is
told. The same for the stages that read the dataset, as the workflow runs them. --keep keeps the
folder for another run with the same numbers.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from gpushmoo.storage.store import read_shard, write_parquet
from synthetic import other_device, write_shard

GIB = 2**30
DTYPES = ("float", "double")
# Blocks of any number have the same threads, so that no cell is over a limit.
KERNEL = "block_eq_partition"
TIMES = ("samples_s", "repeat_medians_s", "median_s", "median_low_s", "median_high_s")
TIMES += ("own_low_s", "own_high_s")
RATES = ("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs", "over_copy")

# What runs in a process of its own; `here` is the folder.
STAGES = {
    "aggregate": """
from gpushmoo.analysis.aggregate import aggregate
aggregate(sorted((here / "cells").rglob("*.parquet")), here / "dataset")
""",
    "ceiling": """
from gpushmoo.analysis.ceiling import COLUMNS, ceiling_rows
from gpushmoo.storage.dataset import read_cells
kinds = {"block_eq_partition": "load"}
where = {"kernel": list(kinds), "status": "ok"}
ceiling_rows(read_cells(here / "dataset", where, COLUMNS), kinds)
""",
    "best": """
from gpushmoo.analysis.best import best_of_dataset
best_of_dataset(here / "dataset")
""",
    "verdict": """
from gpushmoo.analysis.statuses import COLUMNS, verdict
from gpushmoo.storage.dataset import read_cells
verdict(read_cells(here / "dataset", columns=COLUMNS))
""",
    "provenance": """
from gpushmoo.analysis.aggregate import dataset_provenance
dataset_provenance(here / "dataset")
""",
    "figure": """
from gpushmoo.storage.dataset import read_medians
where = {"kernel": "block_eq_partition", "dtype": "float", "height": 1024, "cache_state": "warm"}
read_medians(here / "dataset", where)
""",
    "report": """
from gpushmoo.storage.dataset import read_medians
read_medians(here / "dataset")
""",
}

MEASURED = """
import resource, sys, time
from pathlib import Path
here, limit = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
began = time.monotonic()
{stage}
status = Path("/proc/self/status").read_text()
peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
print(time.monotonic() - began, int(peak) * 1024)
"""


def main() -> None:
    """Generate, run the stages, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--shard-rows", type=int, default=10_000)
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--provenance", type=int, default=60_000)
    parser.add_argument("--limit-gib", type=float, default=2.0)
    parser.add_argument("--stages", nargs="*", default=list(STAGES), choices=STAGES)
    parser.add_argument("--keep", type=Path, help="folder that is made, or used again")
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="aggregate-scale-"))
    try:
        if not (folder / "cells").exists():
            generate(folder / "cells", given)
        print(f"{given.rows:,} rows in {given.rows // given.shard_rows:,} shards")
        print(f"shards: {_gib(folder / 'cells'):.2f} GiB on disk")
        for stage in given.stages:
            print(f"{stage:>10}: {run(stage, folder, int(given.limit_gib * GIB))}", flush=True)
        print(f"dataset: {_gib(folder / 'dataset'):.2f} GiB on disk")
    finally:
        if given.keep is None:
            shutil.rmtree(folder)


class _Plain(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """The docstring as it stands, and the defaults."""


def generate(folder: Path, given: argparse.Namespace) -> None:
    """Write the shards, of which each device has the same number of each dtype."""
    began = time.monotonic()
    n = given.shard_rows
    for place in range(given.rows // n // given.devices):
        dtype = DTYPES[place % len(DTYPES)]
        axes = {"num_partition": range(place * n + 1, (place + 1) * n + 1)}
        path = folder / dtype / f"{place:06d}-of-device-0.parquet"
        write_shard(path, KERNEL, dtype, axes=axes, variants=["exact"])
        table, metadata = read_shard(path)
        del metadata["schema_version"]
        metadata["readings"] = readings(given.provenance)
        for device in range(given.devices):
            info = metadata["device"] | {"uuid": other_device(device).uuid}
            own = path.with_name(f"{place:06d}-of-device-{device}.parquet")
            write_parquet(of_device(table, device), own, metadata | {"device": info})
    print(f"generated in {time.monotonic() - began:.0f} s")


def of_device(table: pa.Table, device: int) -> pa.Table:
    """The cells of device 0 as another one measured them: a little slower each."""
    factor = 1 + 1e-3 * device
    scales = dict.fromkeys(TIMES, factor) | dict.fromkeys(RATES, 1 / factor)
    changed = {"device_uuid": pa.array([other_device(device).uuid] * len(table))}
    for name, scale in scales.items():
        column = table.column(name).combine_chunks()
        if pa.types.is_list(column.type):
            values = pc.multiply(column.flatten(), scale)
            changed[name] = pa.ListArray.from_arrays(column.offsets, values)
        else:
            changed[name] = pc.multiply(column, scale)
    columns = [changed.get(f.name, table.column(f.name)) for f in table.schema]
    return pa.table(columns, schema=table.schema)


def readings(n_bytes: int) -> list[dict[str, Any]]:
    """As many readings of a device as take `n_bytes` as JSON."""
    reading = {"at_s": 0.0, "core_clock_mhz": 1980, "memory_clock_mhz": 3201, "temperature_c": 41}
    return [{**reading, "at_s": float(i)} for i in range(n_bytes // (len(json.dumps(reading)) + 2))]


def run(stage: str, folder: Path, limit: int) -> str:
    """Seconds and peak memory of a stage, or the last line of what it failed with."""
    program = MEASURED.format(stage=STAGES[stage])
    call = [sys.executable, "-c", program, str(folder), str(limit)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or f"ended with {done.returncode}").splitlines()[-1]
        return f"failed under {limit / GIB:.1f} GiB: {said}"
    seconds, peak = done.stdout.split()
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return f"{float(seconds):.0f} s, peak {int(peak) / GIB:.2f} GiB (of all {children / GIB:.2f})"


def _gib(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / GIB


if __name__ == "__main__":
    main()
