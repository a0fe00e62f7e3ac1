"""What a cell costs besides its launches: verification and samples, in one process on this device.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/cell_cost.py OUT.json --size 4096 --step 1

Sweeps the block shapes of `copy2d_coalesced` (float, element) as a measuring process does, without
Snakemake and without writing, and tells how long admitting and sampling took, per cell and beside
what the launches themselves take. ``--profile FILE`` writes a cProfile of it.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import time
from pathlib import Path
from typing import Any

from gpushmoo.core.paths import ROOT
from gpushmoo.core.schema import Status
from gpushmoo.core.space import Cell, Problem, enumerate_cells
from gpushmoo.devices.cuda.device import CudaDevice
from gpushmoo.measuring.builds import build_variants
from gpushmoo.measuring.events import Copied, Ended, Event, Timed
from gpushmoo.measuring.rounds import ShardRun
from gpushmoo.measuring.settings import MeasureSettings, StoppingRule
from gpushmoo.workloads.loader import load_kernel

SAMPLES = 7


class Watch:
    """Keeps when the first cell was timed, the first round ended, and the last cell ended."""

    def __init__(self) -> None:
        self.timed_s: list[float] = []
        self.copied_s: list[float] = []
        self.ended: list[Ended] = []

    def __call__(self, event: Event) -> None:
        now = time.perf_counter()
        if isinstance(event, Timed):
            self.timed_s.append(now)
        elif isinstance(event, Copied):
            self.copied_s.append(now)
        elif isinstance(event, Ended):
            self.ended.append(event)


def swept(device: CudaDevice, cells: list[Cell]) -> dict[str, Any]:
    """Seconds of the parts of one sweep, and what its launches alone take."""
    folder = load_kernel(ROOT / "kernels/copy2d_coalesced")
    builds = build_variants(device, folder, "float", ["element"])
    rule = StoppingRule(SAMPLES, SAMPLES, 0.0, 60.0)
    settings = MeasureSettings(1, 1024, 1, 10.0, rule)
    watch, begin = Watch(), time.perf_counter()
    ShardRun(device, folder, builds, settings, watch).measure(cells)
    end = time.perf_counter()
    ok = [e.run for e in watch.ended if e.run.status is Status.OK]
    launches_s = sum(sum(run.samples_s) * (run.launches or 1) for run in ok)
    admitted_s = watch.timed_s[-1] - watch.timed_s[0]
    sampled_s = watch.copied_s[-1] - watch.timed_s[-1]
    return {
        "cells": len(ok),
        "whole_s": end - begin,
        "admit_ms_a_cell": 1e3 * admitted_s / len(ok),
        "sample_ms_a_cell": 1e3 * sampled_s / len(ok),
        "launches_ms_a_cell": 1e3 * launches_s / len(ok),
        "verified_after_ms_a_cell": 1e3 * (end - watch.copied_s[-1]) / len(ok),
    }


def main() -> None:
    """Measure as the command line says, three times, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=int, default=4096, help="side of the array in elements")
    parser.add_argument("--step", type=int, default=1, help="of the block's width and height")
    parser.add_argument("--profile", type=Path)
    args = parser.parse_args()
    values = list(range(4, 65, args.step))
    axes = {"block_x": values, "block_y": values}
    problem = Problem(args.size, args.size)
    cells = enumerate_cells("copy2d_coalesced", "float", ["element"], [problem], axes)
    device = CudaDevice(0, ROOT / ".cache")
    rounds = [swept(device, cells) for _ in range(3)]
    if args.profile is not None:
        with cProfile.Profile() as profile:
            swept(device, cells)
        profile.dump_stats(args.profile)
    told = {"device": device.info.name, "size": args.size, "samples": SAMPLES, "rounds": rounds}
    args.out.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
