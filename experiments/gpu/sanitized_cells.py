"""Runs every kernel of the project at small sizes in one process, to be run under a sanitizer.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    compute-sanitizer --tool memcheck --padding=512 --report-api-errors=no --error-exitcode 9 \
        .venv/bin/python experiments/gpu/sanitized_cells.py --cache CACHE --out cells.json

and again with the tools racecheck and initcheck. memcheck sees an access outside of all
allocations: buffers are allocated at their own size, and the padding keeps them apart. After a
fault that takes the device ``--first`` goes on behind it.

Every kernel folder, element type and variant is launched at both ends and in the middle of each of
its axes, on sizes that are not a multiple of any block. Every result is verified. The first cell of
a size is also sampled as it is measured: from a graph, and with the cache flushed before.
"""

import argparse
import faulthandler
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gpushmoo.core.errors import DeviceError, DeviceLostError
from gpushmoo.core.space import (
    Cell,
    Condition,
    Problem,
    Residency,
    Version,
    enumerate_cells,
    expand_axis,
)
from gpushmoo.devices.base import Device
from gpushmoo.devices.cuda.backend import CudaDevice
from gpushmoo.devices.memory import OutOfBoundsWrites
from gpushmoo.devices.select import DeviceChoice, open_device
from gpushmoo.measuring.cell_memory import open_space
from gpushmoo.measuring.programs import Builds, programs_for
from gpushmoo.workloads.contract import ReducingWorkload
from gpushmoo.workloads.host_fed import HostFedWorkload
from gpushmoo.workloads.loader import KernelFolder, find_kernels, load_kernel

ROOT = Path(__file__).resolve().parents[2]
SQUARES = (Problem(1, 1), Problem(33, 31), Problem(36, 100), Problem(64, 128))
VECTORS = (Problem(1, 1), Problem(1, 1003), Problem(1, 65537))
# The default axes of a streamed kernel have one value each. Pieces and host's part need others.
STREAMED = {"streams": [1, 3, 64], "min_per_stream": [1], "blocks_per_stream": [3]}
STREAMED |= {"threads": [33, 1000], "chunk": [0, 1000], "host_percent": [0, 37]}


@dataclass(frozen=True)
class Build:
    """What is compiled together and run on each of its problems."""

    folder: KernelFolder
    dtype: str
    variant: str

    @property
    def label(self) -> str:
        """Kernel, element type and variant."""
        return f"{self.folder.name} {self.dtype} {self.variant}"


@dataclass
class Outcome:
    """How cells ended.

    `wrong` and `refused` name them with the reason; `lost` names the build that took the device
    away, after which nothing runs. `builds` counts those begun, `left` those for which there was no
    time.
    """

    right: int = 0
    builds: int = 0
    left: int = 0
    seconds: float = 0.0
    lost: str | None = None
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def bare(device: CudaDevice) -> None:
    """Take its guard zones away: the sanitizer would see an overrun into them as allowed."""

    def allocate(nbytes: int) -> Any:
        """Return a separate allocation of exactly this number of bytes."""
        with device.translated():
            return device.cupy.empty(nbytes // 4, dtype=np.uint32)

    device.allocate = allocate  # type: ignore[method-assign]
    device.guard = lambda buffer: None  # type: ignore[method-assign]
    device.strays = lambda buffers: [OutOfBoundsWrites(0, 0)] * len(buffers)  # type: ignore[method-assign]


def main() -> None:
    """Run all builds from the place `--first` on and write the outcome as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backend", default="cuda", choices=["cuda", "opencl"])
    parser.add_argument("--cache", type=Path, required=True, help="folder for machine code")
    parser.add_argument("--kernels", nargs="*", help="names of kernel folders; all without")
    parser.add_argument("--first", type=int, default=0, help="builds to pass over")
    parser.add_argument("--seconds", type=float, default=420.0, help="start no build after these")
    asked = parser.parse_args()
    # Under a tool a launch may take minutes: what takes so long is in the output.
    faulthandler.dump_traceback_later(60, repeat=True)
    device = open_device(DeviceChoice(asked.backend, 0, "auto", asked.cache))
    if isinstance(device, CudaDevice):
        bare(device)
    builds = builds_of(asked.kernels)[asked.first :]
    outcome = run_builds(device, builds, asked.seconds, asked.out)
    if outcome.lost is None:
        device.close()


def builds_of(names: Sequence[str] | None) -> list[Build]:
    """All that runs on a device: one build of each kernel, then the second of each, and so on."""
    found = []
    for name, path in find_kernels([ROOT / "kernels"]).items():
        folder = load_kernel(path)
        on_host = isinstance(folder.workload, HostFedWorkload) and not folder.workload.device_code
        if not on_host and (not names or name in names):
            pairs = itertools.product(folder.workload.dtypes, folder.workload.variants)
            found.append([Build(folder, dtype, variant) for dtype, variant in pairs])
    turns = itertools.zip_longest(*sorted(found, key=len))
    return [build for turn in turns for build in turn if build is not None]


def run_builds(device: Device, builds: Sequence[Build], seconds: float, out: Path) -> Outcome:
    """Run them until the time is up or the device is lost.

    The outcome is written after each build: under a tool one may take longer than there is time.
    """
    outcome, began = Outcome(left=len(builds)), time.monotonic()
    for build in builds:
        if time.monotonic() - began > seconds or outcome.lost:
            break
        outcome.builds += 1
        try:
            _run(device, build, outcome, began + seconds)
        except DeviceLostError as err:
            outcome.lost = f"{build.label}: {err}"
        except DeviceError as err:
            outcome.refused.append(f"{build.label}: {err}")
        outcome.left = len(builds) - outcome.builds
        outcome.seconds = round(time.monotonic() - began, 1)
        out.write_text(json.dumps(asdict(outcome), indent=1) + "\n")
    return outcome


def _run(device: Device, build: Build, outcome: Outcome, until: float) -> None:
    programs = programs_for(device, build.folder, build.dtype, [Version(build.variant)])
    if programs.failures:
        outcome.wrong.append(f"{build.label}: {programs.failures[build.variant]}")
        return
    for problem in VECTORS if isinstance(build.folder.workload, ReducingWorkload) else SQUARES:
        if time.monotonic() < until:
            _run_problem(device, build, programs, problem, outcome)


def cells_of(device: Device, build: Build, problem: Problem) -> Iterator[Cell]:
    """Both ends and the middle of every axis, without blocks that no launch can have."""
    workload, axes = build.folder.workload, {}
    fed = isinstance(workload, HostFedWorkload)
    for name, spec in (STREAMED if fed else workload.axes).items():
        values = expand_axis(spec, Residency(device.info.multiprocessors, 1))
        picked = values if fed else {values[0], values[len(values) // 2], values[-1]}
        axes[name] = sorted(picked)
    for cell in enumerate_cells(build.folder.name, build.dtype, [build.variant], [problem], axes):
        if workload.launch(cell).threads <= device.info.max_threads_per_block:
            yield cell


def _run_problem(
    device: Device, build: Build, programs: Builds, problem: Problem, outcome: Outcome
) -> None:
    program = programs.programs[build.variant]
    workload = build.folder.workload
    space = open_space(device, workload, problem, build.dtype, build.variant, seed=3)
    space.copy.run()
    for place, cell in enumerate(cells_of(device, build, problem)):
        bound = space.bind(program, cell)
        proof = space.bind_proof(program, cell) or bound
        space.poison()
        proof.run()
        verdict = space.verdict(cell, proof)
        if verdict.wrong_words:
            outcome.wrong.append(f"{build.label} {problem.label} {cell.params}: {verdict.message}")
        else:
            outcome.right += 1
        if place == 0:
            bound.sample(3)
            bound.sample(2, Condition("flushed"))


if __name__ == "__main__":
    main()
