"""Shards that no device measured: a GPU with a 60 MiB cache, made of formulas."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from conftest import ROOT
from gpushmoo import PROTOCOL_VERSION
from gpushmoo.core.measure_settings import Measure, Search
from gpushmoo.core.schema import Status
from gpushmoo.core.space import Cell, Problem, conditions, enumerate_cells
from gpushmoo.devices.base import DeviceInfo
from gpushmoo.measuring.events import CellRun, CopySample, ShardResult
from gpushmoo.measuring.shard_file import cell_table
from gpushmoo.model.fit import seconds
from gpushmoo.model.launches import block_traffic
from gpushmoo.storage.store import write_parquet
from gpushmoo.workloads.contract import Launch, Workload
from gpushmoo.workloads.loader import load_kernel

GPU = DeviceInfo(
    backend="cuda",
    name="NVIDIA H200",
    uuid="GPU-0",
    kind="gpu",
    driver="13.0",
    runtime="CUDA 13.2",
    multiprocessors=132,
    max_threads_per_block=1024,
    max_block=(1024, 1024, 64),
    max_grid=(2**31 - 1, 65535, 65535),
    global_memory=140 * 2**30,
    max_allocation=140 * 2**30,
    cache=60 * 2**20,
    core_clock_mhz=1980,
)
# GB/s inside the cache and outside it.
INSIDE, OUTSIDE = 8000.0, 4200.0
DTYPE_SHARE = {"float": 0.8, "double": 0.95, "float3": 0.9, "float4": 1.0}
START_S = 1e-6
# Of persistent blocks: start, tile, its part of the bus, overlap.
PERSISTENT = (6e-6, 1.3e-6, 4e-9, 3.0)
# Seconds that a block of an image kernel costs its multiprocessor: at least so many between two
# blocks, a life in one of RESIDENT_WARPS' places, so many for each warp and each sector written.
LAUNCH_S = 80e-9
LIFE_S = 400e-9
ISSUE_S = 7.7e-9
SECTOR_S = 4e-9
RESIDENT_WARPS, MAX_RESIDENT = 64, 32
# What storing the sums of a texture costs, as a factor.
WRITTEN = 1.25


def write_shard(  # noqa: PLR0913 - keyword-only properties of a made-up shard
    path: Path,
    kernel: str,
    dtype: str,
    *,
    problems: Sequence[Problem] = (Problem(1024, 1024),),
    states: Sequence[str] = ("warm",),
    kinds: Sequence[str] = ("batched",),
    axes: Mapping[str, Sequence[int]],
    info: DeviceInfo = GPU,
    variants: Sequence[str] = (),
) -> Path:
    """A shard of the project's `kernel` as the measuring job would write it; () is all variants."""
    folder = load_kernel(ROOT / "kernels" / kernel)
    workload = folder.workload
    runs = {}
    names = variants or workload.variants
    for cell in enumerate_cells(kernel, dtype, names, problems, axes, states, kinds):
        launch = workload.launch(cell)
        # OpenCL does not tell it.
        resident = _resident(workload, launch) if info.backend == "cuda" else None
        run = CellRun(cell, launch, resident_blocks=resident, registers=32, launches=1)
        _end(run, workload, info)
        runs[cell.key] = run
    copies = {
        (problem, met): [CopySample(1e-3, float(i)) for i in range(3)]
        for problem in problems
        for met in conditions(states, kinds)
    }
    table = cell_table(ShardResult(runs, copies), workload, info, list(axes))
    sweep = {
        "sizes": [[p.height, p.width] for p in problems],
        "axes": {name: list(values) for name, values in axes.items()},
        "variants": list(names),
        "cache_states": list(states),
        **({} if list(kinds) == ["batched"] else {"timing_modes": list(kinds)}),
    }
    write_parquet(table, path, _metadata(kernel, dtype, sweep, info))
    return path


def _end(run: CellRun, workload: Workload, info: DeviceInfo) -> None:
    if run.launch.threads > info.max_threads_per_block:
        run.end(Status.TOO_MANY_THREADS, "over the limit")
        return
    run.end(Status.OK)
    rng = np.random.default_rng(int(run.cell.key, 16))
    run.samples_s = list(_seconds(run, workload, info) * (1 + 0.002 * rng.standard_normal(7)))
    run.sampled_at_s = [float(i) for i in range(7)]
    run.verified_words, run.wrong_words = 100, 0


def _seconds(run: CellRun, workload: Workload, info: DeviceInfo) -> float:
    cell, launch = run.cell, run.launch
    read = workload.bytes_read(cell.problem, cell.dtype)
    moved = read + workload.bytes_written(cell.problem, cell.dtype)
    if workload.persistent_axis:
        return _persistent_seconds(launch, info)
    if workload.images:
        return _image_seconds(cell, launch, workload, info)
    held = 1.0 / (1.0 + (moved / info.cache) ** 4) if info.cache else 0.0
    rate = OUTSIDE + (INSIDE - OUTSIDE) * (held if cell.cache_state == "warm" else 0.0)
    # Writing is a little slower, and some launches are better than others.
    share = DTYPE_SHARE[cell.dtype] * (1.0 if read == moved else 0.93)
    share *= 1.0 - 0.05 * abs(float(np.log2(launch.threads / 256)))
    return START_S + moved / (rate * share * 1e9)


def _persistent_seconds(launch: Launch, info: DeviceInfo) -> float:
    capacity = 4 * info.multiprocessors
    return float(seconds(np.array([launch.blocks]), launch.tiles, capacity, *PERSISTENT)[0])


def _warps(launch: Launch) -> int:
    return -(-launch.threads // 32)


def _resident(workload: Workload, launch: Launch) -> int:
    if not workload.images:
        return 4
    return max(1, min(MAX_RESIDENT, RESIDENT_WARPS // _warps(launch)))


def _image_seconds(cell: Cell, launch: Launch, workload: Workload, info: DeviceInfo) -> float:
    """The slowest of what a block costs; only what is written costs its sectors, in tiles."""
    limits = [LAUNCH_S, LIFE_S / _resident(workload, launch), ISSUE_S * _warps(launch)]
    traffic = block_traffic(workload, cell, {})
    if traffic is not None and workload.output in workload.images:
        limits.append(SECTOR_S * traffic.store.block_sectors)
    stored = WRITTEN if cell.variant.endswith("-written") else 1.0
    return launch.blocks / info.multiprocessors * max(limits) * stored


def _metadata(
    kernel: str, dtype: str, sweep: Mapping[str, Any], info: DeviceInfo
) -> dict[str, Any]:
    digest = "ac794c3939a83f2a"
    params = shard_params(f"kernels/{kernel}", dtype, sweep, info) | {"kernel_digest": digest}
    return shard_metadata(params, info) | {"builds": {"plain": "-std=c++17"}}


def shard_params(
    folder: str, dtype: str, sweep: Mapping[str, Any], info: DeviceInfo
) -> dict[str, Any]:
    """What a measuring job was told, one that measures the whole of `sweep` once."""
    return {
        "backend": info.backend,
        "device": "all",
        "dtype": dtype,
        "folder": folder,
        "kernel_digest": "0",
        "measure": Measure(
            repeats=1,
            min_samples=6,
            max_samples=31,
            relative_half_width=0.001,
            cell_timeout_s=1000.0,
            search=Search(mode="all"),
        ).of_jobs,
        "opencl_runtime": "auto",
        "repeat": 1,
        "seed": 1,
        "shard": [0, 1],
        "thread_limit": 1024,
        **sweep,
    }


def shard_metadata(params: Mapping[str, Any], info: DeviceInfo) -> dict[str, Any]:
    """The provenance without which no shard is admitted."""
    return {
        "axes": sorted(params["axes"]),
        "build_failures": {},
        "builds": {},
        "controls": [],
        "device": {**asdict(info), "extra": dict(info.extra)},
        "gpushmoo": "0",
        "host": {"cores": 16, "system": "Linux", "python": "3.12"},
        "kernel_digest": params["kernel_digest"],
        "machine_code": None,
        "measuring": {"seconds": 1.0, "budget": None},
        "params": dict(params),
        "protocol_version": PROTOCOL_VERSION,
        "codes": {},
        "readings": [],
        "written_at": "2026-11-21T07:38:59+00:00",
    }


def other_device(number: int) -> DeviceInfo:
    """A device of the same name."""
    return replace(GPU, uuid=f"GPU-{number}")


def flipped_in_a_page(data: bytes) -> bytes:
    """A Parquet file of which a bit of the rows has flipped: the last of its first column."""
    column = pq.read_metadata(BytesIO(data)).row_group(0).column(0)
    begin = column.dictionary_page_offset or column.data_page_offset
    place = begin + column.total_compressed_size - 1
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
