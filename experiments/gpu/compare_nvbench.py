"""Compares our timing modes with both figures of NVIDIA's own harness (PyPI ``cuda-bench``).

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/compare_nvbench.py OUT.json

Both harnesses launch the same compiled kernels on the same buffers in one process; in each of
ROUNDS rounds ours samples right before and right after nvbench, so that a drift of the device would
show. nvbench's ``cold`` figure is of a launch by itself, after a flush of the L2 cache and behind a
kernel that waits for the host: our isolated flushed cells are the like of it. Its ``batch`` figure
is of launches that are queued one by one without a pause: our warm cells of a stream are. All but
the first two of a batch are queued while the device works already: where a launch takes the host
half as long as the device or longer, the batch is the host's figure and is compared with nothing.

Needs a CUDA device, CuPy and cuda-bench 0.3 or newer. Exit status 1 when a pair differs by more
than 1 % in the median of the rounds.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cuda.bench as nvbench
import cupy
import numpy as np
from bound_cells import bound_cells
from gpushmoo.core.median import median_interval
from gpushmoo.core.paths import ROOT
from gpushmoo.core.space import USUAL, Cell, Condition, Problem
from gpushmoo.devices.base import Sample
from gpushmoo.devices.cuda.backend import CudaDevice
from gpushmoo.devices.cuda.timing import CudaLaunch
from gpushmoo.measuring.sample_length import launches_of_group

LIMIT = 0.01
ROUNDS = 3
# Samples of ours before, and as many after, nvbench's.
SAMPLES = 15
# Seconds that nvbench takes for each of its figures, at least.
NVBENCH_S = 0.05
# Our kind beside each of nvbench's figures.
LIKE = {"cold": Condition("flushed", "isolated"), "batch": Condition("warm", "stream")}
TAGS = {"cold": "nv/cold/time/gpu/mean", "batch": "nv/batch/time/gpu/mean"}
# Seconds of each sample, by measurement condition.
Samples = dict[Condition, list[float]]


@dataclass(frozen=True)
class Subject:
    """A launch ready to run; `launch_s` is what one takes, `host_s` what it takes the host."""

    cell: Cell
    bound: CudaLaunch
    launch_s: float
    host_s: float

    @property
    def host_bound(self) -> bool:
        """Whether launches that are queued one by one are too short for the host to keep up."""
        return 2 * self.host_s > self.launch_s

    def samples(self) -> Samples:
        """Samples in seconds of every kind, each taken as the sweep takes it."""
        found: Samples = {}
        for met in LIKE.values():
            launches = launches_of_group(self.launch_s, met)
            found[met] = [Sample(self.bound, launches, met).take() for _ in range(SAMPLES)]
        return found


def cells() -> Iterator[Cell]:
    """Fast and slow shapes of two kernels, inside of an L2 cache, about its size, far outside."""
    for dtype in ("float", "float4"):
        for side in (1024, 2048, 8192):
            problem = Problem(side, side)
            for variant, x, y in (("element", 64, 4), ("element", 4, 64), ("tile32", 32, 8)):
                params = (("block_x", x), ("block_y", y))
                yield Cell("copy2d_coalesced", dtype, variant, problem, params)
            for blocks in (528, 529):
                params = (("num_partition", blocks),)
                yield Cell("block_eq_partition", dtype, "exact", problem, params)


def prepare(device: CudaDevice) -> list[Subject]:
    """Compile, upload and bind every cell; problems share their buffers."""
    found = []
    for cell, bound in bound_cells(device, cells()):
        launch_s = float(np.median([bound.sample(1, USUAL) for _ in range(5)]))
        found.append(Subject(cell, bound, launch_s, host_seconds(device, bound)))
    return found


def host_seconds(device: CudaDevice, bound: CudaLaunch, launches: int = 50) -> float:
    """What queueing a launch takes the host, on a stream that has room for all of them."""
    with device.stream:
        before = time.perf_counter()
        for _ in range(launches):
            bound.enqueue()
        taken_s = time.perf_counter() - before
        device.stream.synchronize()
    return taken_s / launches


@dataclass(frozen=True)
class Round:
    """One cell in one round: our samples around nvbench's, and its figures in seconds."""

    ours: Samples
    theirs: dict[str, float]


def rounds(subjects: list[Subject]) -> dict[int, list[Round]]:
    """All rounds, by the place of the subject."""
    around: dict[tuple[int, int], Samples] = {}

    def bench(state: nvbench.State) -> None:
        place = state.get_int64("cell")
        subject = subjects[place]
        streams: dict[int, Any] = {}

        def launch(go: nvbench.Launch) -> None:
            address = go.get_stream().addressof()
            if address not in streams:
                streams[address] = cupy.cuda.ExternalStream(address)
            with streams[address]:
                subject.bound.enqueue()

        # A device that has just begun to work is a few per cent faster.
        subject.samples()
        before = subject.samples()
        state.exec(launch, batched=True)
        after = subject.samples()
        ours = {met: before[met] + after[met] for met in before}
        around[place, state.get_int64("round")] = ours

    registered = nvbench.register(bench)
    registered.add_int64_axis("cell", range(len(subjects)))
    registered.add_int64_axis("round", range(ROUNDS))
    registered.set_batch_target_time(NVBENCH_S)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "nvbench.json"
        nvbench.run_all_benchmarks(["compare", "--json", str(out), "--min-time", str(NVBENCH_S)])
        report = json.loads(out.read_text())
    found: dict[int, list[Round]] = {}
    for state in report["benchmarks"][0]["states"]:
        axes = {value["name"]: int(value["value"]) for value in state["axis_values"]}
        told = {
            one["tag"]: float(next(d["value"] for d in one["data"] if d["name"] == "value"))
            for one in state["summaries"] or ()
            if one["tag"] in TAGS.values()
        }
        theirs = {name: told[tag] for name, tag in TAGS.items() if tag in told}
        ours = around[axes["cell"], axes["round"]]
        found.setdefault(axes["cell"], []).append(Round(ours, theirs))
    return found


def compared(subject: Subject, found: list[Round]) -> Iterator[dict[str, Any]]:
    """A row for each of nvbench's figures."""
    cell = subject.cell
    for name, met in LIKE.items():
        if told := [one for one in found if name in one.theirs]:
            ours = [float(np.mean(one.ours[met])) for one in told]
            ratios = [mean / one.theirs[name] for mean, one in zip(ours, told, strict=True)]
            median = median_interval([s for one in told for s in one.ours[met]])
            where = {"kernel": cell.kernel, "dtype": cell.dtype, "variant": cell.variant}
            where |= {"params": dict(cell.params), "side": cell.problem.width}
            yield {
                **where,
                **met._asdict(),
                "nvbench": name,
                "is_like": not (name == "batch" and subject.host_bound),
                "launches": launches_of_group(subject.launch_s, met),
                "host_s": subject.host_s,
                "ours_median_s": median.median,
                "ours_low_s": median.low,
                "ours_high_s": median.high,
                "ours_mean_s": float(np.mean(ours)),
                "nvbench_mean_s": [one.theirs[name] for one in told],
                # Means, because nvbench reports no median of a batch.
                "ratio": float(np.median(ratios)),
                "ratios": ratios,
            }


def main(out: Path) -> int:
    """Print the comparison, write it to `out`, and say by the exit status whether it holds."""
    device = CudaDevice(0, ROOT / "results" / "compare-nvbench")
    subjects = prepare(device)
    found = rounds(subjects)
    rows = [
        row for place, subject in enumerate(subjects) for row in compared(subject, found[place])
    ]
    worst = {}
    for name in LIKE:
        off = [abs(r["ratio"] - 1) for r in rows if r["is_like"] and r["nvbench"] == name]
        worst[name] = max(off, default=None)
        said = f"{100 * worst[name]:.2f} %" if off else "nothing was judged"
        print(f"{name}: worst difference {said}; {100 * LIMIT:.0f} % is allowed")
    text = json.dumps({"device": device.info.name, "worst": worst, "cells": rows}, indent=1)
    out.write_text(text)
    return int(any(off is None or off > LIMIT for off in worst.values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
