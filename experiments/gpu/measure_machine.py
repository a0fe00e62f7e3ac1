"""Measures what a simulated device's file must know of a CUDA device: latencies and rates.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/measure_machine.py --out OUT.json

Latency: one thread follows a chain of loads, each address the content of the one before, through
arrays that fit the last cache and through larger ones; 256 bytes apart (as the blocks of
block_eq_partition go on by a tile), the next tile of 132 or 528 blocks apart, or in random order.
Arrays up to CACHED_BYTES are in the cache, larger ones are not: FLUSH_BYTES of another array are
written and read before. Rates: the fastest of several grids that only read, only write, or copy
4 GiB by 16 bytes a thread. Each figure is the median of REPEATS.

Needs a CUDA device and CuPy.
"""

from __future__ import annotations

import argparse
import json
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
from gpushmoo import __version__

REPEATS = 9
HOPS = 1 << 15
MIB = 1 << 20
SIZES = (4 * MIB, 8 * MIB, 256 * MIB, 512 * MIB, 1024 * MIB)
# Chains in arrays up to here are measured when they are in the last cache, larger ones when not.
CACHED_BYTES, FLUSH_BYTES = 16 * MIB, 512 * MIB
STRIDES = {"256 B": 256, "132 tiles": 132 * 256, "528 tiles": 528 * 256, "random": 0}
RATE_BYTES = 4 << 30

SOURCE = r"""
__device__ static unsigned long long first()
{
    return blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
}

extern "C" __global__ void chase(const unsigned *next, unsigned start, int hops,
                                 long long *cycles, unsigned *sink)
{
    unsigned at = start;
    for (int i = 0; i < 64; ++i)
        at = __ldcg(next + at);
    const long long before = clock64();
    for (int i = 0; i < hops; ++i)
        at = __ldcg(next + at);
    *sink = at;
    *cycles = clock64() - before;
}

extern "C" __global__ void read_all(const uint4 *in, uint4 *out, unsigned long long n)
{
    uint4 s = make_uint4(0, 0, 0, 0);
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = first(); i < n; i += 4 * step) {
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if (i + k * step < n) {
                const uint4 v = __ldcs(in + i + k * step);
                s.x ^= v.x; s.y ^= v.y; s.z ^= v.z; s.w ^= v.w;
            }
    }
    if ((s.x ^ s.y ^ s.z ^ s.w) == 0x12345679u)
        out[0] = s;
}

extern "C" __global__ void write_all(const uint4 *in, uint4 *out, unsigned long long n)
{
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = first(); i < n; i += step)
        out[i] = make_uint4((unsigned)i, 1u, 2u, 3u);
}

extern "C" __global__ void copy_all(const uint4 *in, uint4 *out, unsigned long long n)
{
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = first(); i < n; i += step)
        out[i] = in[i];
}
"""


def main() -> None:
    """Measure all and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    module = cp.RawModule(code=SOURCE, options=("-std=c++17",))
    found = {
        "device": _device(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpushmoo": __version__,
        "latency_cycles": [
            {"n_bytes": size, "step": name, **_latency(module.get_function("chase"), size, stride)}
            for size in SIZES
            for name, stride in STRIDES.items()
        ],
        "rate_gbs": {
            name: _rate(module.get_function(f"{name}_all"), bytes_per_element)
            for name, bytes_per_element in (("read", 16), ("write", 16), ("copy", 32))
        },
    }
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def _device() -> dict[str, Any]:
    properties = cp.cuda.runtime.getDeviceProperties(0)
    return {
        "name": properties["name"].decode(),
        "multiprocessors": properties["multiProcessorCount"],
        "threads_per_multiprocessor": properties["maxThreadsPerMultiProcessor"],
        "l2_bytes": properties["l2CacheSize"],
        "driver": cp.cuda.runtime.driverGetVersion(),
        "clock_mhz": _clock_mhz(),
    }


def _clock_mhz() -> float:
    """Cycles of an SM in the time of a long chain, by events: the clock under such a load."""
    chase = cp.RawModule(code=SOURCE, options=("-std=c++17",)).get_function("chase")
    cycles, seconds = _follow(chase, _chain(8 * MIB, 256), 1 << 20, cold=False)
    return round(cycles / seconds / 1e6, 1)


def _chain(n_bytes: int, stride: int) -> Any:
    """An array of words, each the index of the next; `stride` bytes apart, or at random for 0."""
    words = n_bytes // 4
    if stride:
        following = (cp.arange(words, dtype=cp.int64) + stride // 4) % words
        return following.astype(cp.uint32)
    # One word of each 256 bytes, all in one random cycle.
    lines = np.random.default_rng(1).permutation(words // 64) * 64
    following = np.zeros(words, np.uint32)
    following[lines] = np.roll(lines, -1)
    return cp.asarray(following)


def _follow(chase: Any, chain: Any, hops: int, *, cold: bool) -> tuple[int, float]:
    """Cycles of `hops` loads and seconds by the device's events; `cold`: not one in a cache."""
    cycles, sink = cp.zeros(1, np.int64), cp.zeros(1, np.uint32)
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    arguments = (chain, np.uint32(0), np.int32(hops), cycles, sink)
    if cold:
        cp.ones(FLUSH_BYTES // 4, np.int32).sum().item()
    else:
        chase((1,), (1,), arguments)
    begin.record()
    chase((1,), (1,), arguments)
    end.record()
    end.synchronize()
    return int(cycles[0]), cp.cuda.get_elapsed_time(begin, end) / 1e3


def _latency(chase: Any, n_bytes: int, stride: int) -> dict[str, float]:
    # A cold chain is no longer than the array: a second turn would find it in the cache.
    apart = stride or 256
    cold = n_bytes > CACHED_BYTES
    hops = min(HOPS, n_bytes // apart - 65) if cold else HOPS
    chain = _chain(n_bytes, stride)
    samples = [_follow(chase, chain, hops, cold=cold)[0] / hops for _ in range(REPEATS)]
    return {
        "median": round(statistics.median(samples), 1),
        "low": round(min(samples), 1),
        "high": round(max(samples), 1),
        "hops": hops,
        "cold": cold,
    }


def _rate(kernel: Any, bytes_per_element: int) -> dict[str, float]:
    n = RATE_BYTES // 16
    source = cp.random.randint(0, 2**31, RATE_BYTES // 4, dtype=np.int32)
    target = cp.zeros(RATE_BYTES // 4, np.int32)
    best: dict[str, float] = {"gbs": 0.0}
    for threads in (128, 256, 512, 1024):
        for blocks in (132 * 2048 // threads, 4 * 132 * 2048 // threads, -(-n // threads)):
            arguments = ((blocks,), (threads,), (source, target, np.uint64(n)))
            kernel(*arguments)
            samples = []
            for _ in range(REPEATS):
                begin, end = cp.cuda.Event(), cp.cuda.Event()
                begin.record()
                kernel(*arguments)
                end.record()
                end.synchronize()
                samples.append(cp.cuda.get_elapsed_time(begin, end) / 1e3)
            gbs = n * bytes_per_element / statistics.median(samples) / 1e9
            if gbs > best["gbs"]:
                best = {"gbs": round(gbs, 1), "threads": threads, "blocks": blocks}
    return best


if __name__ == "__main__":
    main()
