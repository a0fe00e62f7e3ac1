"""Compares the speed of a sweep with Kernel Tuner's (PyPI ``kernel_tuner``), everything counted.

    python experiments/gpu/compare_kernel_tuner.py OUT.json --kernel transpose --verification host

Both tools sweep the same cells of the same kernel on the same device: the block shapes of
`copy2d_coalesced`, or tile, rows a thread, padding and block width of `transpose`, of which all but
the last are compiled in. gpushmoo runs as the command ``gpushmoo sweep``, verifying every cell,
Kernel Tuner as kernel_tuner_sweep.py, which says how it is set up and what ``--verification`` is.
A sweep's time is that of its process, from the start over imports, context, compilation (no process
finds a compiled kernel of another) and verification to the written results. One small sweep of each
goes before, so that neither pays for cold files.

Needs a CUDA device, CuPy and kernel_tuner.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]

Axes = dict[str, list[int]]
# Axes and their values.
Point = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Space:
    """What is swept of a kernel."""

    variant: str
    axes: Axes

    def every(self, step: int) -> Axes:
        """Every `step`-th value of each axis."""
        return {axis: values[::step] for axis, values in self.axes.items()}

    @property
    def ends(self) -> Axes:
        """The small sweep that goes before."""
        return {axis: [values[0], values[-1]] for axis, values in self.axes.items()}


SPACES = {
    "copy2d_coalesced": Space(
        "element", {"block_x": list(range(4, 65)), "block_y": list(range(4, 65))}
    ),
    "transpose": Space(
        "tile",
        {
            "TILE": [8, 16, 24, 32, 48, 64],
            "ROWS": [1, 2, 4, 8, 16, 32],
            "PAD": list(range(9)),
            "block_x": [8, 16, 32, 64],
        },
    ),
}


@dataclass(frozen=True)
class Asked:
    """What both tools are asked for; `size` is the side of the array in elements."""

    kernel: str
    axes: Axes
    size: int
    verification: str


@dataclass(frozen=True)
class Sweep:
    """One sweep: wall seconds, the median seconds of every valid cell, and its facts."""

    wall_s: float
    device: str
    medians: dict[Point, float]
    facts: dict[str, Any]


# What is said about sweeps


def speed(sweep: Sweep) -> dict[str, Any]:
    """Wall time, valid cells, and one by the other."""
    cells = len(sweep.medians)
    return {
        "wall_s": sweep.wall_s,
        "cells": cells,
        "cells_per_s": cells / sweep.wall_s,
        "ms_per_cell": 1e3 * sweep.wall_s / cells,
    }


def repeatability(first: dict[Point, float], second: dict[Point, float]) -> dict[str, float]:
    """Median |difference| / mean of the two medians of a cell, over the cells that both have."""
    shared = sorted(first.keys() & second.keys())
    a, b = np.array([first[s] for s in shared]), np.array([second[s] for s in shared])
    return {"median": float(np.median(2.0 * np.abs(a - b) / (a + b)))}


def _over_rounds(sweeps: Sequence[Sweep]) -> dict[Point, float]:
    shared = set.intersection(*(set(s.medians) for s in sweeps))
    return {c: float(np.median([s.medians[c] for s in sweeps])) for c in shared}


def fastest(ours: Sequence[Sweep], theirs: Sequence[Sweep]) -> dict[str, Any]:
    """Each tool's fastest cell, and how much slower than its own the other tool finds it."""
    a, b = _over_rounds(ours), _over_rounds(theirs)
    shared = a.keys() & b.keys()
    x, y = min(shared, key=a.__getitem__), min(shared, key=b.__getitem__)
    return {
        "gpushmoo": {"cell": dict(x), "slower_by_the_other": b[x] / b[y] - 1.0},
        "kernel_tuner": {"cell": dict(y), "slower_by_the_other": a[y] / a[x] - 1.0},
    }


def compare(ours: Sequence[Sweep], theirs: Sequence[Sweep]) -> dict[str, Any]:
    """Everything that is said about the rounds of each tool; one round repeats nothing."""
    rounds = [
        {"gpushmoo": speed(a), "kernel_tuner": speed(b)} for a, b in zip(ours, theirs, strict=True)
    ]
    ratios = [r["gpushmoo"]["cells_per_s"] / r["kernel_tuner"]["cells_per_s"] for r in rounds]
    sweeps = [*ours, *theirs]
    return {
        "devices": sorted({s.device for s in sweeps}),
        "same_cells": all(s.medians.keys() == sweeps[0].medians.keys() for s in sweeps),
        "passes": rounds,
        "ratio": {
            "median": float(np.median(ratios)),
            "least": min(ratios),
            "greatest": max(ratios),
        },
        "repeatability": {
            tool: repeatability(done[0].medians, done[1].medians)
            for tool, done in (("gpushmoo", ours), ("kernel_tuner", theirs))
            if len(done) > 1
        },
        "fastest": fastest(ours, theirs),
    }


# Running the tools


def read_shards(folder: Path, axes: Axes, wall_s: float) -> Sweep:
    """gpushmoo's sweep over `axes` from the shards under `folder`."""
    tables = [pq.ParquetFile(p).read() for p in sorted(folder.rglob("*.parquet"))]
    told = json.loads(tables[0].schema.metadata[b"gpushmoo"])
    rows = pa.concat_tables(tables).to_pylist()
    valid = [r for r in rows if r["status"] == "ok"]
    facts = {
        "versions": {
            "gpushmoo": told["gpushmoo"],
            "runtime": told["device"]["runtime"],
            "driver": told["device"]["driver"],
            "python": told["host"]["python"],
        },
        "settings": told["params"],
        "samples": sum(len(r["samples_s"]) for r in valid),
    }
    medians = {point_of(r, axes): r["median_s"] for r in valid}
    return Sweep(wall_s, told["device"]["name"], medians, facts)


def point_of(row: dict[str, Any], axes: Axes) -> Point:
    """Return the point of the space to which a tool's row belongs."""
    return tuple((axis, row[axis]) for axis in axes)


def read_kernel_tuner(file: Path, axes: Axes, wall_s: float) -> Sweep:
    """Kernel Tuner's sweep from the file that kernel_tuner_sweep.py wrote."""
    told = json.loads(file.read_text())
    cells = told.pop("cells")
    medians = {point_of(c, axes): 1e-3 * float(np.median(c["times_ms"])) for c in cells}
    facts = told | {"samples": sum(len(c["times_ms"]) for c in cells)}
    return Sweep(wall_s, facts.pop("device"), medians, facts)


def timed(command: Sequence[str], cwd: Path, scratch: Path) -> float:
    """Wall seconds of `command`, which finds CuPy's compile cache empty; its end when it fails."""
    cache = Path(tempfile.mkdtemp(dir=scratch))
    started = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "CUPY_CACHE_DIR": str(cache), "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    wall_s = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout}")
    return wall_s


def run_gpushmoo(asked: Asked, scratch: Path) -> Sweep:
    """A whole sweep from the shell, with the defaults."""
    folder = Path(tempfile.mkdtemp(dir=scratch)) / "kept"
    command = [sys.executable, "-m", "gpushmoo", "sweep", str(ROOT / "kernels" / asked.kernel)]
    command += ["--variants", SPACES[asked.kernel].variant, "--dtypes", "float"]
    command += ["--sizes", str(asked.size), "--out", str(folder)]
    for axis, values in asked.axes.items():
        command += ["--axes", f"{axis}={','.join(map(str, values))}"]
    wall_s = timed(command, ROOT, scratch)
    return read_shards(folder / "cells", asked.axes, wall_s)


def run_kernel_tuner(asked: Asked, scratch: Path) -> Sweep:
    """Run a whole sweep with Kernel Tuner in a new folder, in which it finds no cache file."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    script = Path(__file__).with_name("kernel_tuner_sweep.py")
    command = [sys.executable, str(script), str(folder / "sweep.json")]
    command += ["--kernel", asked.kernel, "--axes", json.dumps(asked.axes)]
    command += ["--size", str(asked.size), "--verification", asked.verification]
    wall_s = timed(command, folder, scratch)
    return read_kernel_tuner(folder / "sweep.json", asked.axes, wall_s)


def main() -> None:
    """Sweep, and write and print what came out after every round."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kernel", choices=sorted(SPACES), default="copy2d_coalesced")
    parser.add_argument("--step", type=int, default=1, help="take every N-th value of an axis")
    parser.add_argument("--size", type=int, default=8192, help="side of the array in elements")
    parser.add_argument("--rounds", type=int, default=2, help="sweeps of each tool")
    parser.add_argument("--verification", choices=("none", "host", "device"), default="none")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    space = SPACES[args.kernel]
    asked = Asked(args.kernel, space.every(args.step), args.size, args.verification)
    ours: list[Sweep] = []
    theirs: list[Sweep] = []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        before = replace(asked, axes=space.ends)
        run_gpushmoo(before, scratch)
        run_kernel_tuner(before, scratch)
        for _ in range(args.rounds):
            ours.append(run_gpushmoo(asked, scratch))
            theirs.append(run_kernel_tuner(asked, scratch))
            # After every round: a run that is ended keeps what it measured.
            result = {
                "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "asked": asdict(asked),
                **compare(ours, theirs),
            }
            print(json.dumps(result, indent=1), flush=True)
            facts = {"gpushmoo": [s.facts for s in ours], "kernel_tuner": [s.facts for s in theirs]}
            args.out.write_text(json.dumps(result | {"facts": facts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
