"""Aggregates many generated rows, and prints rows, seconds and peak memory.

    PYTHONPATH=workflow/scripts python tests/benchmarks/aggregate_scale.py --rows 10000000

Generates shards of a sweep of one kernel (two dtypes, so two partitions) on --devices devices of
one name: every cell is measured by each of them. Keys are spread as hashes are. Each shard has
--samples samples a cell and --provenance bytes of readings. Then `aggregate` runs in a process of
its own, whose writable memory is limited to --limit-gib by the kernel (RLIMIT_DATA), and whose peak
resident memory (VmHWM) is told. The same for the stages that read the dataset, as the workflow runs
them. --keep keeps the folder for another run with the same numbers.
"""

from __future__ import annotations

import argparse
import binascii
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
from gpushmoo.devices.base import DeviceInfo
from gpushmoo.schema import cell_schema
from gpushmoo.store import write_parquet

GIB = 2**30
DTYPES = ("float", "double")
AXES = ("block_x", "block_y")
SPREAD = np.uint64(0x9E3779B97F4A7C15)
KERNEL = "copy2d_coalesced"

GPU = DeviceInfo(
    backend="cuda",
    name="Generated GPU",
    uuid="GPU-00000000-0000-0000-0000-000000000000",
    kind="gpu",
    driver="13.0",
    runtime="CUDA 13.2",
    units=132,
    max_threads_per_block=1024,
    max_block=(1024, 1024, 64),
    max_grid=(2**31 - 1, 65535, 65535),
    global_memory=140 * GIB,
    max_allocation=140 * GIB,
    cache=60 * 2**20,
    core_clock_mhz=1980,
)

# What runs in a process of its own; `here` is the folder.
STAGES = {
    "aggregate": """
from gpushmoo.analysis.aggregate import aggregate
aggregate(sorted((here / "cells").rglob("*.parquet")), here / "dataset")
""",
    "ceiling": """
from gpushmoo.analysis.ceiling import COLUMNS, ceiling_rows
from gpushmoo.dataset import read_cells
kinds = {"copy2d_coalesced": "load"}
where = {"kernel": list(kinds), "status": "ok"}
ceiling_rows(read_cells(here / "dataset", where, COLUMNS), kinds)
""",
    "best": """
from gpushmoo.analysis.best import best_of_dataset
best_of_dataset(here / "dataset")
""",
    "verdict": """
from gpushmoo.analysis.statuses import COLUMNS, verdict
from gpushmoo.dataset import read_cells
verdict(read_cells(here / "dataset", columns=COLUMNS))
""",
    "provenance": """
from gpushmoo.analysis.aggregate import dataset_provenance
dataset_provenance(here / "dataset")
""",
    "figure": """
from gpushmoo.dataset import read_medians
where = {"kernel": "copy2d_coalesced", "dtype": "float", "height": 1024, "cache_state": "warm"}
read_medians(here / "dataset", where)
""",
    "report": """
from gpushmoo.dataset import read_medians
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
    parser.add_argument("--samples", type=int, default=7)
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
    shards = given.rows // given.shard_rows
    for number in range(shards):
        device, place = number % given.devices, number // given.devices
        dtype = DTYPES[place % len(DTYPES)]
        path = folder / dtype / f"{number:06d}.parquet"
        write_parquet(
            rows(given.shard_rows, place, device, dtype, given.samples),
            path,
            _metadata(dtype, device, given.provenance),
        )
    print(f"generated in {time.monotonic() - began:.0f} s")


def rows(n: int, place: int, device: int, dtype: str, samples: int) -> pa.Table:
    """`n` cells; another device has the same cells at the same `place`."""
    # The product with an odd number is a bijection: no key comes twice.
    numbers = np.sort(np.arange(place * n, (place + 1) * n, dtype=np.uint64) * SPREAD)
    hexes = binascii.hexlify(numbers.astype(">u8").tobytes())
    offsets = np.arange(0, 16 * n + 1, 16, dtype=np.int32)
    keys = pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(hexes))
    rng = np.random.default_rng([place, device])
    seconds = 1e-3 * (1 + rng.random(n))[:, None] * (1 + 0.01 * rng.random((n, samples)))
    lists = pa.array(np.arange(0, samples * n + 1, samples, dtype=np.int32))
    median = np.median(seconds, axis=1)
    values = {
        "cell_key": keys,
        "samples_s": pa.ListArray.from_arrays(lists, pa.array(seconds.ravel())),
        "sampled_at_s": pa.ListArray.from_arrays(lists, pa.array(rng.random(n * samples))),
        "median_s": median,
        "median_low_s": seconds.min(axis=1),
        "median_high_s": seconds.max(axis=1),
        "bandwidth_gbs": 1 / median,
        "bandwidth_low_gbs": 1 / seconds.max(axis=1),
        "bandwidth_high_gbs": 1 / seconds.min(axis=1),
        "copy_gbs": rng.random(n),
        "block_x": rng.integers(1, 64, n),
        "block_y": rng.integers(1, 64, n),
    }
    same = {
        "kernel": KERNEL,
        "dtype": dtype,
        "variant": "element",
        "status": "ok",
        "cache_state": "warm",
        "device_uuid": f"GPU-{device:08d}-0000-0000-0000-000000000000",
        "device_name": GPU.name,
        "backend": GPU.backend,
        "message": None,
        "measured_at": 0,
    }
    schema = cell_schema(AXES)
    columns = [
        pa.array(values[f.name], f.type)
        if f.name in values
        else pa.repeat(pa.scalar(same.get(f.name, 1024), f.type), n)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def _metadata(dtype: str, device: int, n_bytes: int) -> dict[str, object]:
    reading = {"at_s": 0.0, "core_clock_mhz": 1980, "memory_clock_mhz": 3201, "temperature_c": 41}
    each = len(json.dumps(reading)) + 2
    params = {"folder": f"kernels/{KERNEL}", "dtype": dtype}
    info = {**asdict(GPU), "uuid": f"GPU-{device:08d}", "extra": {}}
    readings = [{**reading, "at_s": float(i)} for i in range(n_bytes // each)]
    return {"axes": list(AXES), "params": params, "device": info, "readings": readings}


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
