"""Compares our printed loop with the third document's own program, and both with the host.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/compare_printed.py --document DOCUMENT.txt --out FOLDER

Both listings of `reduce` are cut out of the document's text as they are and compiled by nvcc into a
shared library. It runs within this process (same CUDA context, memory pool and arrays): only the
language differs. A round times both ways once, in an order drawn for it, after a call outside of
the clock. Results must be equal, or nothing is compared. Writes printed.json, and rivals.parquet:
the chapter's rounds by the keys of config/dots.yaml, with the program as one more way.

Needs a CUDA device, CuPy and nvcc. Exit status 1 where, within this process, the median of the log
ratios over all lengths is over 0.10 or the largest over 0.35.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.paths import ROOT
from gpushmoo.devices.cuda.backend import CudaDevice
from gpushmoo.measuring.shard_file import provenance
from gpushmoo.storage.store import write_parquet
from gpushmoo.workloads.loader import load_kernel
from streamed_dot.rivals import (
    DTYPES_COMPARED,
    ON_DEVICE,
    STREAMED,
    Bench,
    Call,
    Dot,
    Rivals,
    run_rivals,
)

# The first and the last words around each listing.
LISTINGS = (
    ("This leads to the following attempt:", "While there is surely room"),
    ("it is possible to optimize for sum of squares too.", '{ "data"'),
)
HERE = "program, this process"
# Names of our ways with as many streams.
OURS = {64: "as published", 1: "as published, one stream"}
PRINTED = {64: "printed program", 1: "printed program, one stream"}
ROUNDS = 8
# A measurement has enough calls that the processor's caches contain the way's own code.
MIN_S, MAX_CALLS = 3e-3, 20
MEDIAN_LIMIT, WORST_LIMIT = 0.10, 0.35
# Returns the mean seconds of a call, given the number of calls.
Timed = Callable[[int], float]


def build(document: Path, folder: Path, arch: str) -> Path:
    """The shared library of both versions of `reduce` as the document prints them."""
    text, parts = document.read_text(encoding="utf-8"), []
    for first, last in LISTINGS:
        _, found, rest = text.partition(first)
        listing, ended, _ = rest.partition(last)
        if not (found and ended):
            raise ValueError(f"the document has no listing between '{first}' and '{last}'")
        parts.append(listing)
    file, library = folder / "listing.cu", folder / "printed_dot.so"
    file.write_text("\n".join(parts), encoding="utf-8")
    options = ["-std=c++20", "-O3", f"-arch={arch}", "-w", "-shared", "-cudart=shared"]
    host = ["-Xcompiler", "-march=native,-fPIC", f'-DLISTING="{file}"']
    source = str(ROOT / "experiments/gpu/printed_dot.cu")
    subprocess.run(["nvcc", *options, *host, source, "-o", str(library)], check=True)
    return library


def loaded(library: Path) -> Any:
    """The shared library, with the argument and result types of its function."""
    found = ctypes.CDLL(str(library))
    found.printed_dot.restype = ctypes.c_double
    integers = [ctypes.c_int, ctypes.c_int, ctypes.c_size_t]
    found.printed_dot.argtypes = [*integers, ctypes.c_void_p, ctypes.c_void_p]
    return found


def mean_seconds(run: Callable[[], object], calls: int) -> float:
    """Return the mean time of `calls` calls by the host's clock, after one untimed call."""
    run()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def program_ways(program: Any, dot: Dot) -> dict[int, Call]:
    """The program within this process, by its number of streams, on the arrays of `dot`.

    Raises ValueError for another result than ours.
    """
    known = dot.space.known
    arrays = [array.ctypes.data for array in dot.space.arrays[True].values()]
    x = arrays[0]
    y = None if dot.operation == "x·x" else arrays[1]
    ways = {}
    for streams in OURS:
        run = partial(program.printed_dot, streams, DTYPES[dot.dtype].itemsize, dot.n, x, y)
        if abs(run() - known.value) > 1e-4 * known.magnitude:
            raise ValueError(
                f"{dot.operation}, {dot.dtype}, n = {dot.n}: the program gives {run()!r}"
            )
        ways[streams] = Call(run)
    return ways


def compare(ways: Mapping[str, Timed], rounds: int, rng: np.random.Generator) -> dict[str, Any]:
    """Seconds of each way by round."""
    first = {way: timed(1) for way, timed in ways.items()}
    calls = {way: max(1, min(MAX_CALLS, int(MIN_S / s))) for way, s in first.items()}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in (str(name) for name in rng.permutation(list(ways))):
            times[way].append(ways[way](calls[way]))
    return times


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Log ratios of ours to the program over all lengths, by operation, type and streams."""
    found = []
    for group in dict.fromkeys((r["operation"], r["dtype"], r["streams"]) for r in rows):
        mine = [r for r in rows if (r["operation"], r["dtype"], r["streams"]) == group]
        logs = {r["n"]: float(np.log(np.median(r["ours"]) / np.median(r[HERE]))) for r in mine}
        worst = max(logs, key=lambda n: abs(logs[n]))
        told = dict(zip(("operation", "dtype", "streams"), group, strict=True))
        told |= {"way": "ours", "over": HERE, "median_log": float(np.median([*logs.values()]))}
        found.append(told | {"worst_log": logs[worst], "worst_n": worst})
    return found


def compare_all(bench: Bench, library: Path, lengths: Sequence[int], rounds: int) -> list[Any]:
    """A row an operation, type, number of streams and length: seconds of both ways by round."""
    program = loaded(library)
    rows, rng = [], np.random.default_rng(1)
    for operation, dtype, n in product(bench.operations, DTYPES_COMPARED, lengths):
        with bench.space(operation, dtype, n) as space:
            dot = Dot(space, operation, dtype, n)
            for streams, here in program_ways(program, dot).items():
                variant, params = ON_DEVICE[OURS[streams]]
                ours = bench.on_device(dot, variant, params)
                ways: dict[str, Timed] = {
                    "ours": partial(mean_seconds, ours.run),
                    HERE: partial(mean_seconds, here.run),
                }
                key = {"operation": operation, "dtype": dtype, "streams": streams, "n": n}
                rows.append(key | compare(ways, rounds, rng))
    return rows


def write_printed(
    bench: Bench, library: Path, lengths: Sequence[int], args: argparse.Namespace
) -> list[dict[str, Any]]:
    """Writes printed.json and prints its summary, which it returns."""
    start = time.monotonic()
    rows = compare_all(bench, library, lengths, args.rounds)
    found = summary(rows)
    result = {"device": asdict(bench.device.info), "command": "experiments/gpu/compare_printed.py"}
    result["written_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    result["seconds"] = round(time.monotonic() - start, 1)
    text = json.dumps(
        result | {"compared": found, "rows": rows}, indent=1, ensure_ascii=False, default=str
    )
    (args.out / "printed.json").write_text(text + "\n", encoding="utf-8")
    for group in found:
        print(*(v if isinstance(v, str | int) else round(v, 3) for v in group.values()))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--document", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--arch", default="native")
    parser.add_argument("--only", choices=("printed", "rivals"), help="one of the two files")
    args = parser.parse_args()
    config = yaml.safe_load((ROOT / "config/dots.yaml").read_text(encoding="utf-8"))
    asked = Rivals(**config["chapters"]["streamed_dot"]["rivals"], seed=1)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        device = CudaDevice(0, Path(folder))
        folders = {kernel: load_kernel(ROOT / "kernels" / kernel) for kernel in STREAMED.values()}
        library = build(args.document, Path(folder), args.arch)
        if args.only != "rivals":
            found = write_printed(Bench(device, folders, 1), library, asked.lengths, args)
        if args.only != "printed":

            def program(place: Dot) -> dict[str, Call]:
                ways = program_ways(loaded(library), place)
                return {PRINTED[streams]: call for streams, call in ways.items()}

            table = run_rivals(device, folders, asked, program)
            write_parquet(table, args.out / "rivals.parquet", provenance(device.info, "", {}))
    return int(
        any(abs(f["median_log"]) > MEDIAN_LIMIT or abs(f["worst_log"]) > WORST_LIMIT for f in found)
    )


if __name__ == "__main__":
    sys.exit(main())
