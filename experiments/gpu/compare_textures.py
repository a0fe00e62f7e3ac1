"""Compares our texture and surface sweeps with a plain CUDA C++ version of the second document's.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/compare_textures.py --out OUT.json

The peer, document_textures.cu, measures the same block shapes on the same device by its own
launches and events; ours go through gpushmoo's workspace, verification and sampling. The two take
turns, and who begins takes turns, too, so that a drift of the device favours neither. First all
shapes get a few samples; then those that are among the fastest ten of either side, or as fast as
its tenth, get many, from which follow the best shapes and their order. Neighbours differ by less
than the noise, so the order is judged by the pairs that both sides can tell apart. Both replay
several launches of a sample as a graph; what the document's own way, one launch after the other in
a stream, makes of the best shapes is told beside it.

Needs a CUDA device, CuPy and nvcc. Exit status 1 when the best bandwidths differ by more than 1 %,
when such a pair is in another order, or when the device slowed itself down.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from gpushmoo import __version__
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.median import MedianInterval, median_interval
from gpushmoo.core.paths import ROOT
from gpushmoo.core.space import Cell, Problem
from gpushmoo.devices.base import Bound, Sample
from gpushmoo.devices.cuda.device import CudaDevice
from gpushmoo.devices.machine_code.nvrtc import nvrtc_version
from gpushmoo.measuring.buffers import open_space
from gpushmoo.measuring.rounds import shuffled
from gpushmoo.measuring.settings import TOGETHER
from gpushmoo.workloads.loader import load_kernel
from scipy.stats import rankdata

LIMIT = 0.01
SOURCE = "experiments/gpu/document_textures.cu"
KERNELS = {"texture": ("tex2d_sum", "block-point-clamp"), "surface": ("surf2d_memset", "block-one")}
FIRST, LAST, MAX_THREADS = 4, 64, 1024
TOP = 10
MOST_REMEASURED = 30  # of either side; there may be many ties
TURNS, TURNS_OF_THE_BEST = 2, 4
WARM_UP_S = 0.2
SEED = 1

Shape = tuple[int, int]
Samples = dict[Shape, list[float]]
Turns = tuple[list[Samples], list[Samples]]  # ours and theirs
Intervals = Mapping[Shape, MedianInterval]


def valid_shapes(step: int) -> list[Shape]:
    """The document's blocks (width, height) that are not over the thread limit."""
    side = range(FIRST, LAST + 1, step)
    return [(x, y) for y in side for x in side if x * y <= MAX_THREADS]


def parse_csv(text: str, shapes: Sequence[Shape], samples: int) -> Samples:
    """What the C++ program printed. Raises ValueError unless all `shapes` have all `samples`."""
    found: Samples = {}
    for line in text.splitlines():
        x, y, *seconds = line.split(",")
        times = [float(s) for s in seconds]
        if len(times) != samples or not all(0.0 < s < math.inf for s in times):
            raise ValueError(f"not a shape with {samples} positive times: {line}")
        found[int(x), int(y)] = times
    if found.keys() != set(shapes) or len(text.splitlines()) != len(shapes):
        raise ValueError("other shapes were measured than were asked for, or some twice")
    return found


def name(shape: Shape) -> str:
    """``width x height`` as it stands in the C++ program's arguments."""
    return f"{shape[0]}x{shape[1]}"


def split(count: int, parts: int) -> list[int]:
    """`count` in at most `parts` nearly equal parts, the larger first; none is empty."""
    return [n for i in range(parts) if (n := count // parts + (i < count % parts))]


def intervals(turns: Sequence[Samples]) -> dict[Shape, MedianInterval]:
    """Median and interval of each shape over the samples of all turns."""
    return {shape: median_interval([s for t in turns for s in t[shape]]) for shape in turns[0]}


def ranking(cells: Intervals) -> list[Shape]:
    """All shapes, fastest first."""
    return sorted(cells, key=lambda shape: (cells[shape].median, shape))


def candidates(cells: Intervals) -> list[Shape]:
    """The fastest TOP shapes and those that are as fast as the last of them may be, so many."""
    ranked = ranking(cells)
    tenth = cells[ranked[:TOP][-1]]
    return [s for s in ranked if cells[s].median <= tenth.high][:MOST_REMEASURED]


def bandwidth(cell: MedianInterval, nbytes: int) -> dict[str, float]:
    """Of a launch that moves so many bytes, with its interval."""
    gb = nbytes * 1e-9
    return {"gbs": gb / cell.median, "low": gb / cell.high, "high": gb / cell.low}


def ratio(ours: MedianInterval, theirs: MedianInterval) -> dict[str, float]:
    """Our bandwidth over theirs; `low` and `high` from the far ends of both intervals."""
    value = theirs.median / ours.median
    return {"value": value, "low": theirs.low / ours.high, "high": theirs.high / ours.low}


def spearman(ours: Intervals, theirs: Intervals, shapes: Sequence[Shape]) -> float | None:
    """Rank correlation of the medians; None where a side does not rank at all."""
    a, b = (rankdata([cells[s].median for s in shapes]) for cells in (ours, theirs))
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) and np.ptp(b) else None


def pair_order(ours: Intervals, theirs: Intervals, shapes: Sequence[Shape]) -> dict[str, int]:
    """Pairs of `shapes`, those that both sides tell apart, and those in another order.

    A side tells two shapes apart when their intervals do not overlap.
    """
    low, high = (
        [np.array([getattr(cells[s], end) for s in shapes]) for cells in (ours, theirs)]
        for end in ("low", "high")
    )
    # first[i, j]: shape i is surely faster than shape j.
    ours_first, theirs_first = (h[:, None] < w for h, w in zip(high, low, strict=True))
    same = int(np.count_nonzero(ours_first & theirs_first))
    discordant = int(np.count_nonzero(ours_first & theirs_first.T))
    pairs = len(shapes) * (len(shapes) - 1) // 2
    return {"pairs": pairs, "distinguishable": same + discordant, "discordant": discordant}


def agreement(ours: Intervals, theirs: Intervals, shapes: Sequence[Shape]) -> dict[str, Any]:
    """Order of `shapes` on both sides, and (ours − theirs) / theirs of their median times."""
    relative = np.array([ours[s].median / theirs[s].median - 1.0 for s in shapes])
    return {
        "interval_coverage": min(cells[s].coverage for cells in (ours, theirs) for s in shapes),
        "spearman": spearman(ours, theirs, shapes),
        "order": pair_order(ours, theirs, shapes),
        "difference": float(np.median(relative)),
        "difference_unsigned": float(np.median(abs(relative))),
    }


def findings(nbytes: int, first: Turns, second: Turns) -> dict[str, Any]:
    """Everything that is said about one kernel and size.

    `first` holds all shapes, `second` those that were measured again.
    """
    all_ours, all_theirs = map(intervals, first)
    ours, theirs = map(intervals, second)
    tops = ranking(ours)[:TOP], ranking(theirs)[:TOP]
    rows = [
        [{"block": list(s), **bandwidth(cells[s], nbytes)} for s in top]
        for top, cells in zip(tops, (ours, theirs), strict=True)
    ]
    a, b = tops[0][0], tops[1][0]
    by_turn = [float(np.median(y[b]) / np.median(x[a])) for x, y in zip(*second, strict=True)]
    return {
        "shapes": len(all_ours),
        "shapes_remeasured": len(ours),
        "best": {"gpushmoo": rows[0][0], "document": rows[1][0]},
        "ratio_of_best": ratio(ours[a], theirs[b]) | {"by_turn": by_turn},
        "top": {"gpushmoo": rows[0], "document": rows[1]},
        "top_shared": len({*tops[0]} & {*tops[1]}),
        "union_of_tops": agreement(ours, theirs, sorted({*tops[0], *tops[1]})),
        "all_shapes": agreement(all_ours, all_theirs, sorted(all_ours)),
    }


def in_a_stream(nbytes: int, graphs: Sequence[Samples], plain: Samples) -> dict[str, Any]:
    """The document's best shape by plain launches; what a launch takes longer than in a graph."""
    cells, replayed = intervals([plain]), intervals(graphs)
    best = ranking(cells)[0]
    longer = [cells[s].median - replayed[s].median for s in cells]
    return {
        "best": {"block": list(best), **bandwidth(cells[best], nbytes)},
        "longer_s": float(np.median(longer)),
    }


def complaints(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why the comparison fails; empty when it holds."""
    found = []
    for case in cases:
        what = f"{case['what']} {case['size']}²"
        value = case["ratio_of_best"]["value"]
        if abs(value - 1.0) > LIMIT:
            found.append(f"{what}: the best bandwidths have the ratio {value:.4f}")
        if discordant := case["union_of_tops"]["order"]["discordant"]:
            found.append(f"{what}: {discordant} distinguishable pairs of the top are in disorder")
        if any(reading["slowed"] for reading in case["readings"]):
            found.append(f"{what}: the device slowed itself down")
    return found


def lines(case: Mapping[str, Any]) -> list[str]:
    """One kernel and size for a person."""
    best = case["ratio_of_best"]
    text = [
        f"{case['what']} {case['size']}²: {case['shapes']} shapes, {case['wall_s']:.1f} s",
        f"  best, gpushmoo over document: {best['value']:.4f} "
        f"({best['low']:.4f} to {best['high']:.4f})",
    ]
    plain = case["document_in_a_stream"]
    text.append(
        f"  document's launches in a stream: {plain['best']['gbs']:.1f} GB/s at "
        f"{name(tuple(plain['best']['block']))}, {1e6 * plain['longer_s']:+.2f} us a launch"
    )
    for what in ("union_of_tops", "all_shapes"):
        part, order, rho = case[what], case[what]["order"], case[what]["spearman"]
        text.append(
            f"  {what.replace('_', ' ')}: Spearman {'-' if rho is None else format(rho, '.4f')}, "
            f"{order['discordant']} of {order['distinguishable']} distinguishable pairs in "
            f"disorder, times differ by {part['difference']:+.2%} "
            f"({part['difference_unsigned']:.2%} unsigned)"
        )
    text.append(f"  top {TOP}, {case['top_shared']} shared, in GB/s: gpushmoo, document")
    for place, both in enumerate(zip(*case["top"].values(), strict=True), 1):
        shown = (
            f"{name(tuple(r['block'])):>6} {r['gbs']:7.1f} ({r['low']:.1f} to {r['high']:.1f})"
            for r in both
        )
        text.append(f"  {place:>2}  " + "".join(f"{cell:<36}" for cell in shown).rstrip())
    return text


@dataclass(frozen=True)
class Case:
    """A texture or a surface of size² floats."""

    what: str
    size: int

    @property
    def nbytes(self) -> int:
        """Read or written by one launch."""
        return self.size**2 * 4

    @property
    def launches(self) -> int:
        """In one sample: ten at 4096², the document's size, and as much work in smaller images."""
        return min(200, max(1, 10 * 4096**2 // self.size**2))


class Ours:
    """gpushmoo in this process: all shapes bound, verified and launched as a sweep does it."""

    def __init__(self, device: CudaDevice, case: Case, shapes: Sequence[Shape]) -> None:
        kernel, variant = KERNELS[case.what]
        folder = load_kernel(ROOT / "kernels" / kernel)
        workload, problem = folder.workload, Problem(case.size, case.size)
        program = device.build(folder.path, DTYPES["float"], workload.defines("float", variant))
        self._space = open_space(device, workload, problem, "float", variant, SEED)
        self._device, self._launches = device, case.launches
        self._rng = np.random.default_rng(SEED)
        self._bounds: dict[Shape, Bound] = {}
        for x, y in shapes:
            cell = Cell(kernel, "float", variant, problem, (("block_x", x), ("block_y", y)))
            self._bounds[x, y] = self._space.bind(program, cell)
            proof = self._space.bind_proof(program, cell) or self._bounds[x, y]
            self._space.poison()
            proof.run()
            if fault := self._space.verdict(cell, proof).message:
                raise SystemExit(f"{kernel} {name((x, y))}: {fault}.")

    def take(self, shapes: Sequence[Shape], rounds: int) -> Samples:
        """As a sweep samples: so many cells together, queued behind one spin."""
        until = time.monotonic() + WARM_UP_S
        while time.monotonic() < until:
            self._bounds[shapes[len(shapes) // 2]].run()
        found: Samples = {shape: [] for shape in shapes}
        for _ in range(rounds):
            order = list(shuffled(shapes, self._rng))
            for start in range(0, len(order), TOGETHER):
                part = order[start : start + TOGETHER]
                samples = [Sample(self._bounds[s], self._launches) for s in part]
                for shape, outcome in zip(part, self._device.sample_all(samples), strict=True):
                    if isinstance(outcome, Exception):
                        raise outcome
                    found[shape].append(outcome)
        return found


@dataclass
class Theirs:
    """The C++ program, a process a turn; the first turn verifies every shape."""

    program: Path
    case: Case
    step: int
    commands: list[str]
    turn: int = 0

    def take(self, shapes: Sequence[Shape], rounds: int, how: str = "graph") -> Samples:
        """Run it. Raises SystemExit with its sentence when it fails."""
        self.turn += 1
        verify = "verify" if self.turn == 1 else "trust"
        everything = len(shapes) == len(valid_shapes(self.step))
        words = [FIRST, LAST, self.step] if everything else [name(shape) for shape in shapes]
        first = self.case.what, self.case.size, rounds, self.case.launches, how, self.turn, verify
        arguments = [str(word) for word in (*first, *words)]
        self.commands.append(" ".join(["./document_textures", *arguments]))
        return parse_csv(run([str(self.program), *arguments], self.commands[-1]), shapes, rounds)


def run(command: Sequence[str], shown: str) -> str:
    """What `command` prints. Raises SystemExit when it fails, naming it as `shown`."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shown}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def alternate(
    device: CudaDevice, sides: tuple[Ours, Theirs], shapes: Sequence[Shape], rounds: Sequence[int]
) -> tuple[Turns, list[dict[str, Any]]]:
    """Both take turns of so many rounds; also the device's state after each."""
    turns: Turns = ([], [])
    readings: list[dict[str, Any]] = []
    for number, n in enumerate(rounds):
        for which in (1, 0) if number % 2 == 0 else (0, 1):
            turns[which].append(sides[which].take(shapes, n))
            if (reading := device.reading()) is not None:
                readings.append(asdict(reading) | {"slowed": reading.slowed})
    return turns, readings


def measure(
    device: CudaDevice, program: Path, case: Case, args: argparse.Namespace, commands: list[str]
) -> dict[str, Any]:
    """One kernel and size, in two stages."""
    began = time.monotonic()
    shapes = valid_shapes(args.step)
    sides = Ours(device, case, shapes), Theirs(program, case, args.step, commands)
    first, before = alternate(device, sides, shapes, split(args.rounds, TURNS))
    picked = sorted({s for side in first for s in candidates(intervals(side))})
    second, after = alternate(device, sides, picked, split(args.samples, TURNS_OF_THE_BEST))
    plain = sides[1].take(picked, args.samples, "stream")
    return {
        **asdict(case),
        "variant": " ".join((*KERNELS[case.what], "float")),
        "launches_per_sample": case.launches,
        **findings(case.nbytes, first, second),
        "document_in_a_stream": in_a_stream(case.nbytes, second[1], plain),
        "readings": before + after,
        "wall_s": time.monotonic() - began,
    }


def compile_program(folder: Path, device: CudaDevice, commands: list[str]) -> tuple[Path, str]:
    """The C++ program made by nvcc, and nvcc's version. Raises SystemExit when that fails."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        raise SystemExit("nvcc is missing; install the CUDA toolkit.")
    arch = "sm_" + device.info.extra["compute_capability"].replace(".", "")
    program, options = folder / "document_textures", ["-O3", f"-arch={arch}", "-std=c++17"]
    commands.append(" ".join(["nvcc", *options, "-o", program.name, SOURCE]))
    run([nvcc, *options, "-o", str(program), SOURCE], commands[-1])
    return program, "".join(re.findall(r"V(\d[\d.]+)", run([nvcc, "--version"], "nvcc")))


def main() -> int:
    """Measure, write OUT, print it, and say by the exit status whether it holds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kernels", nargs="+", choices=list(KERNELS), default=list(KERNELS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[4096, 16384])
    parser.add_argument("--step", type=int, default=1, help="distance of the block sizes")
    parser.add_argument("--rounds", type=int, default=5, help="samples of every shape")
    parser.add_argument("--samples", type=int, default=31, help="samples of the best shapes")
    args = parser.parse_args()
    began = time.monotonic()
    device = CudaDevice(0, ROOT / "results" / "compare-textures")
    commands: list[str] = []
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        program, nvcc = compile_program(Path(folder), device, commands)
        for case in (Case(what, size) for what in args.kernels for size in args.sizes):
            cases.append(measure(device, program, case, args, commands))
            print("\n".join(lines(cases[-1])), flush=True)
    failed, wall_s = complaints(cases), time.monotonic() - began
    result = {
        "device": device.info.name,
        "device_facts": {k: v for k, v in asdict(device.info).items() if k not in ("name", "uuid")},
        "gpushmoo": __version__,
        "compilers": {"nvcc": nvcc, "nvrtc": nvrtc_version()},
        "python": platform.python_version(),
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_s": wall_s,
        "asked": {k: v for k, v in vars(args).items() if k != "out"},
        "commands": commands,
        "failed": failed,
        "cases": cases,
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join([f"{wall_s:.0f} s", *(f"FAILED: {c}" for c in failed)]))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
