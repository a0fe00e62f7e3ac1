"""What every step of measuring cells does alike: announcing it, ending cells, telling how far."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from ..core.dtypes import DTYPES
from ..core.errors import DeviceLostError, TypedError
from ..core.schema import Status
from ..core.space import Cell, CellGroup
from ..devices.base import Device, Program, Sample
from ..devices.one_by_one import take_each
from ..workloads.host_fed import HostFedWorkload
from ..workloads.loader import KernelFolder
from .builds import Builds
from .events import Began, CellRun, Ended, Event, Worked
from .outcome import status_of
from .progress import Work
from .settings import MeasureSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

# Cells that are worked on without waiting between them, and the seconds that they may take
# together: a hanging cell is looked for when nothing is heard for longer than one launch may take.
TOGETHER = 32
TOGETHER_S = 0.1

# Times that samples are taken again because the process or the machine stood still meanwhile.
RETAKES = 10


@dataclass
class CellSteps:
    """One open device, the kernel that it runs, and to whom each step is told.

    At most `together` cells are worked on without waiting between them. `started` is the shard's
    beginning on `clock`. `stood_still` tells whether this process or its machine did since it was
    last asked. `launches` is how many make a sample of each group, as far as that is chosen.
    """

    device: Device
    folder: KernelFolder
    builds: Builds
    settings: MeasureSettings
    emit: Callable[[Event], None]
    clock: Callable[[], float] = time.monotonic
    started: float = 0.0
    together: int = TOGETHER
    stood_still: Callable[[], bool] = lambda: False
    launches: dict[CellGroup, int] = field(default_factory=dict)
    work: Work = field(default_factory=lambda: Work([], 0))

    def now_s(self) -> float:
        """Seconds since the shard began."""
        return self.clock() - self.started

    def version(self, cell: Cell) -> str:
        """Name of what is compiled for `cell`."""
        return self.folder.workload.version(cell).name

    def program(self, cell: Cell) -> Program:
        """What is compiled for `cell`, which is there."""
        return self.builds.programs[self.version(cell)]

    def check_statically(self, run: CellRun) -> None:
        """End the cell where no launch is needed to know that there is none."""
        limit = self.device.info.max_threads_per_block
        if self.settings.thread_limit is not None:
            limit = min(limit, self.settings.thread_limit)
        if run.launch.threads > limit:
            run.end(Status.TOO_MANY_THREADS, f"{run.launch.threads} threads a block; limit {limit}")
        elif (refusal := self._image_refusal(run.cell)) is not None:
            run.end(Status.RESOURCES, refusal)
        elif (name := self.version(run.cell)) in self.builds.failures:
            failure = self.builds.failures[name]
            run.end(status_of(failure), str(failure))

    def _image_refusal(self, cell: Cell) -> str | None:
        if not self.folder.workload.images:
            return None
        return self.device.image_refusal(cell.problem, DTYPES[cell.dtype])

    def end(self, run: CellRun, status: Status, message: str | None = None) -> None:
        """The cell's status, told at once."""
        run.end(status, message)
        self.work.end(run.cell.key)
        self.emit(Ended(run))
        self.emit(Worked(self.work.fraction))

    def end_open(self, runs: Sequence[CellRun], status: Status, message: str | None) -> None:
        """The status of all that have none."""
        for run in runs:
            if run.status is None:
                self.end(run, status, message)

    def end_by(self, run: CellRun, err: TypedError) -> None:
        """The status that an error gives."""
        self.end(run, status_of(err), str(err))

    def end_by_clock(self, run: CellRun, seconds: float) -> None:
        """A launch that took no time is none."""
        text = f"the device's clock gave {seconds} s for a launch"
        self.end(run, Status.LAUNCH_FAILED, text)

    def guarded(self, run: CellRun, step: Callable[[], object]) -> None:
        """Run `step`; an error in it ends this cell with its typed status, not the shard."""
        self.emit(Began((run.cell.key,)))
        try:
            step()
        except DeviceLostError:
            raise
        except TypedError as err:
            self.end_by(run, err)

    def undisturbed(self, runs: Sequence[CellRun], take: Callable[[], T]) -> tuple[float, T]:
        """When it began and what `take` gives; taken again where something stood still meanwhile.

        Each launch is announced: one of them may take as long as a launch may, not all.
        """
        for _ in range(1 + RETAKES):
            if runs:
                self.emit(Began(tuple(r.cell.key for r in runs)))
            self.stood_still()
            began_s = self.now_s()
            taken = take()
            if not self.stood_still():
                break
            log.warning("the process or the machine stood still: %d samples are void", len(runs))
        return began_s, taken

    def outcomes(self, runs: Sequence[CellRun]) -> tuple[float, Sequence[float | TypedError]]:
        """When a sample of each began, and the seconds of a launch of it, or what went wrong."""
        samples: list[Sample] = [run.sample() for run in runs]
        # What the host times is not queued.
        fed = isinstance(self.folder.workload, HostFedWorkload)
        take = take_each if fed else self.device.sample_all
        return self.undisturbed(runs, partial(take, samples))

    def step(self, run: CellRun) -> None:
        """Count its verification, or a sample of it; one that is taken again is no progress."""
        if self.work.step(run.cell.key, len(run.samples_s)):
            self.emit(Worked(self.work.fraction))

    def begin(self, runs: Sequence[CellRun]) -> None:
        """Count the work of cells that are open."""
        self.work = Work([r.cell.key for r in runs], self.settings.rule.max_samples)
