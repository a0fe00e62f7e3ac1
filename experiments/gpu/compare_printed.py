"""Compares our printed loop with the third document's own program, length by length, in rounds.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/compare_printed.py --document DOCUMENT.txt --out OUT.json

Both listings of `reduce` are cut out of the document's text as they are and compiled with nvcc into
printed_dot.cu, which runs beside this process and waits for its turn: once alone on the device, and
once with other memory there, as ours always has, so that its cudaMalloc need not map any. Ours is
the variant `published` of dot_streamed and dot_square with the document's parameters. A round times
all at each length, and who begins takes turns; told are the ratios of ours to either program's
times, of the rounds' medians. Both give the same numbers, or nothing is compared.

Needs a CUDA device, CuPy and nvcc. Exit status 1 where the median of the ratios over all lengths is
over 1.15 or the largest over 1.40, for either type and operation.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from gpushmoo import __version__
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.median import median_interval
from gpushmoo.core.paths import ROOT
from gpushmoo.core.space import Cell, Problem
from gpushmoo.devices.cuda.device import CudaDevice
from gpushmoo.measuring.buffers import FedSpace
from gpushmoo.measuring.host_pipeline import Feed
from gpushmoo.workloads.host_fed import HostFedWorkload
from gpushmoo.workloads.loader import load_kernel

# The first and the last words around each listing.
LISTINGS = (
    ("This leads to the following attempt:", "While there is surely room"),
    ("it is possible to optimize for sum of squares too.", '{ "data"'),
)
PROGRAMS = ("program", "program, other memory")
OPERATIONS = {"x·y": "dot_streamed", "x·x": "dot_square"}
PRINTED = {"min_per_stream": 1 << 12, "blocks_per_stream": 32, "threads": 1024}
STREAMS = (64, 1)
LENGTHS = tuple(2**e for e in range(6, 28))
ROUNDS, LEAST_S, MOST_CALLS = 7, 3e-3, 8
MEDIAN_LIMIT, WORST_LIMIT = 1.15, 1.40
Key = tuple[str, str, int, int]  # operation, type, streams, n


def listings(text: str) -> str:
    """Both versions of `reduce` as the document prints them. Raises ValueError."""
    parts = []
    for first, last in LISTINGS:
        begin = text.find(first)
        end = text.find(last, begin)
        if begin < 0 or end < 0:
            raise ValueError(f"the document has no listing between '{first}' and '{last}'")
        parts.append(text[begin + len(first) : end])
    return "\n".join(parts)


def inputs(n: int, dtype: str) -> dict[str, np.ndarray[Any, Any]]:
    """Eighths, so that all partial sums are exact; those of printed_dot.cu."""
    i, scalar = np.arange(n), DTYPES[dtype].scalar
    return {"x": (1 + i % 7).astype(scalar) / 8, "y": (1 + i % 5).astype(scalar) / 8}


class Program:
    """The document's program, built and running."""

    def __init__(self, document: Path, folder: Path, arch: str, most: int) -> None:
        listing = folder / "listing.cu"
        listing.write_text(listings(document.read_text(encoding="utf-8")), encoding="utf-8")
        binary = folder / "printed_dot"
        options = ["-std=c++20", "-O3", f"-arch={arch}", "-Xcompiler", "-march=native", "-w"]
        source = str(ROOT / "experiments/gpu/printed_dot.cu")
        define = f'-DLISTING="{listing}"'
        command = ["nvcc", *options, define, source, "-o", str(binary)]
        subprocess.run(command, check=True)
        self._processes = {}
        for name, more in zip(PROGRAMS, ((), ("other",)), strict=True):
            self._processes[name] = subprocess.Popen(
                [str(binary), str(most), *more],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._answer(name)

    def _answer(self, name: str) -> str:
        output = self._processes[name].stdout
        assert output is not None
        return output.readline()

    def run(self, name: str, key: Key, calls: int) -> tuple[float, float]:
        """Mean seconds of a call of one of PROGRAMS, and the number."""
        operation, dtype, streams, n = key
        asked = self._processes[name].stdin
        assert asked is not None
        nbytes = DTYPES[dtype].itemsize
        asked.write(f"{int(operation == 'x·x')} {nbytes} {n} {streams} {calls}\n")
        asked.flush()
        seconds, value = self._answer(name).split()
        return float(seconds), float(value)


class Ours:
    """The variant `published`, by key; arrays of the longest length serve all."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._folders = {o: load_kernel(ROOT / "kernels" / k) for o, k in OPERATIONS.items()}
        self._programs = {
            (o, d): device.build(f.path, DTYPES[d], {})
            for o, f in self._folders.items()
            for d in ("float", "double")
        }
        self._spaces: dict[tuple[str, str, int], FedSpace] = {}

    def feed(self, key: Key) -> Feed:
        """The bound pipeline of a key."""
        operation, dtype, streams, n = key
        workload = self._folders[operation].workload
        assert isinstance(workload, HostFedWorkload)
        if (operation, dtype, n) not in self._spaces:
            arrays = {name: a for name, a in inputs(n, dtype).items() if name in workload.operands}
            self._spaces = {(operation, dtype, n): FedSpace(self._device, workload, arrays)}
        params = {**PRINTED, "streams": streams, "chunk": 0, "host_percent": 0}
        cell = Cell(workload.name, dtype, "published", Problem(1, n), tuple(sorted(params.items())))
        space = self._spaces[operation, dtype, n]
        return space.bind(self._programs[operation, dtype], cell)


def compare(key: Key, ours: Ours, program: Program, rounds: int) -> dict[str, Any]:
    """Seconds of all sides by round. Raises ValueError where the numbers differ."""
    feed = ours.feed(key)
    feed.run()
    first_s, value = program.run(PROGRAMS[0], key, 1)
    program.run(PROGRAMS[1], key, 1)
    if not np.isclose(feed.value, value, rtol=1e-4):
        raise ValueError(f"{key}: ours is {feed.value!r}, the program's {value!r}")
    calls = max(1, min(MOST_CALLS, int(LEAST_S / first_s)))
    times: dict[str, list[float]] = {side: [] for side in ("ours", *PROGRAMS)}
    for number in range(rounds + 1):
        for side in sorted(times, reverse=number % 2 == 1):
            taken = feed.sample(calls) if side == "ours" else program.run(side, key, calls)[0]
            # The first round warms all up.
            times[side] += [taken] if number else []
    return {"operation": key[0], "dtype": key[1], "streams": key[2], "n": key[3], **times}


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each operation, type, number of streams and program: ours over it, over all lengths."""
    found = []
    places = dict.fromkeys((r["operation"], r["dtype"], r["streams"]) for r in rows)
    for group, peer in itertools.product(places, PROGRAMS):
        mine = [r for r in rows if (r["operation"], r["dtype"], r["streams"]) == group]
        ratios = {r["n"]: float(np.median(r["ours"]) / np.median(r[peer])) for r in mine}
        paired = [o / p for r in mine for o, p in zip(r["ours"], r[peer], strict=True)]
        within = median_interval(paired)
        worst = max(ratios, key=lambda n: ratios[n])
        found.append(
            {
                **dict(zip(("operation", "dtype", "streams"), group, strict=True)),
                "peer": peer,
                "median": float(np.median([*ratios.values()])),
                "least": min(ratios.values()),
                "worst": ratios[worst],
                "worst_n": worst,
                "paired": [within.low, within.median, within.high],
            }
        )
    return found


def missed(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Groups with the document's 64 streams that are not within the limits."""
    asked = [f for f in found if f["streams"] == STREAMS[0]]
    return [f for f in asked if f["median"] > MEDIAN_LIMIT or f["worst"] > WORST_LIMIT]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--document", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--arch", default="native")
    args = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        device = CudaDevice(0, Path(folder))
        program = Program(args.document, Path(folder), args.arch, LENGTHS[-1])
        ours, rows = Ours(device), []
        for operation in OPERATIONS:
            for dtype in ("double", "float"):
                for n in LENGTHS:
                    keys = [(operation, dtype, s, n) for s in STREAMS]
                    rows += [compare(key, ours, program, args.rounds) for key in keys]
        info = {**asdict(device.info), "extra": dict(device.info.extra)}
    found = summary(rows)
    result = {
        "gpushmoo": __version__,
        "device": info,
        "host": {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - start, 1),
        "command": "experiments/gpu/compare_printed.py",
        "ours over the program": found,
        "rows": rows,
    }
    args.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for group in found:
        print({k: v if isinstance(v, str | int) else np.round(v, 3) for k, v in group.items()})
    return int(bool(missed(found)))


if __name__ == "__main__":
    sys.exit(main())
