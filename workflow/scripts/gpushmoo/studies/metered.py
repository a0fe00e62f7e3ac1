"""Cells that run for seconds each while the device counts what they use, in rounds."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ..core.errors import DeviceLostError, TypedError
from ..core.space import CACHE_STATES, Cell, ChosenCell
from ..devices.base import Bound, Device
from ..measuring.buffers import Space, open_space
from ..measuring.builds import build_versions
from ..workloads.host_fed import HostFedWorkload
from ..workloads.loader import KernelFolder
from .windows import CounterSteps, NoEnergyError, Window, measure_window

log = logging.getLogger(__name__)

# A sample lasts about so long: its start on an idle device then weighs little, and the end of a
# window is soon noticed.
SAMPLE_S = 0.05
MOST_LAUNCHES = 1024
# Untimed launches before the first that is timed.
_WARMING = 2


@dataclass(frozen=True)
class EnergyPlan:
    """How energy is measured: every cell once in each of the `rounds`, in an order by the `seed`.

    A cell runs for `warm_s` seconds and then over a window of `window_s` at least. The idle device
    is left alone for `settle_s` seconds, in which clocks fall, before its own window.
    """

    seed: int
    rounds: int = 3
    window_s: float = 2.0
    warm_s: float = 0.4
    settle_s: float = 4.0


@dataclass
class MeteredCell:
    """A cell, and what was found of it; `message` says why there is nothing, or no more."""

    chosen: ChosenCell
    message: str | None = None
    launches: int = 0
    windows: list[Window] = field(default_factory=list)


@dataclass(frozen=True)
class Metered:
    """All cells in their order, and the windows of the idle device, before and after them."""

    cells: Sequence[MeteredCell]
    idle: Sequence[Window]


@dataclass(frozen=True)
class _ReadyCell:
    """A cell that may run: bound in the `space` in which it is verified by `proof`."""

    metered: MeteredCell
    space: Space
    bound: Bound
    proof: Bound

    def fault(self) -> str | None:
        """What is wrong with the output of a run on poisoned memory."""
        self.space.poison()
        self.proof.run()
        return self.space.verdict(self.metered.chosen.cell, self.proof).message


class EnergyMeter:
    """Measures cells on one device, whose counter's steps are watched beside it."""

    def __init__(
        self,
        device: Device,
        folders: Mapping[str, KernelFolder],
        plan: EnergyPlan,
        steps: CounterSteps,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """`steps` are those of the counter of `device`, at times of `clock`."""
        self._device, self._folders, self._plan = device, folders, plan
        self._steps, self._clock, self._sleep = steps, clock, sleep
        self._random = random.Random(plan.seed)

    def measure(
        self,
        chosen: Sequence[ChosenCell],
        say: Callable[[str], None],
        keep: Callable[[Metered], None],
    ) -> Metered:
        """All cells, as many at a time as have room on the device.

        After each round what was found so far is given to `keep`, with cells whose result will be
        verified once more. Raises NoEnergyError.
        """
        cells = [MeteredCell(one) for one in chosen]
        idle = [self._idle()]
        try:
            for ready in self._batches([cell for cell in cells if self._may_run(cell)]):
                self._measure_rounds(ready, say, lambda: keep(Metered(cells, idle)))
                # What comes next needs their memory.
                ready.clear()
            idle.append(self._idle())
        except DeviceLostError as err:
            for cell in cells:
                cell.message = cell.message or str(err)
        return Metered(cells, idle)

    def _idle(self) -> Window:
        """The device with nothing to do."""

        def rest() -> float:
            self._sleep(SAMPLE_S)
            return 0.0

        plan = self._plan
        return measure_window(rest, self._steps, self._clock, plan.settle_s, plan.window_s)

    def _may_run(self, cell: MeteredCell) -> bool:
        workload = self._folders[cell.chosen.cell.kernel].workload
        if cell.chosen.cell.cache_state != CACHE_STATES[0]:
            cell.message = "energy is measured of launches that follow each other, of warm cells"
        elif sum(workload.bytes_moved(cell.chosen.cell)) == 0:
            cell.message = "it moves no bytes by which energy could be divided"
        elif isinstance(workload, HostFedWorkload):
            cell.message = "its data come from the host, whose energy the device does not count"
        return cell.message is None

    def _batches(self, cells: Sequence[MeteredCell]) -> Iterator[list[_ReadyCell]]:
        """Cells that are ready, those of as many spaces together as the device has room for."""
        ready: list[_ReadyCell] = []
        for some in _by_data(cells, self._folders):
            if ready and not self._has_room(some, ready):
                yield ready
                ready = []
            ready += self._admitted(some)
        if ready:
            yield ready

    def _has_room(self, some: Sequence[MeteredCell], ready: Sequence[_ReadyCell]) -> bool:
        """Whether their data fit beside those of the cells that are `ready`, by what they need."""
        data = {_data_of(r.metered, self._folders): r.metered.chosen.cell for r in ready}
        needed = [self._footprint(c) for c in [*data.values(), some[0].chosen.cell]]
        return sum(needed) < 0.9 * self._device.info.global_memory

    def _footprint(self, cell: Cell) -> int:
        return self._folders[cell.kernel].workload.footprint(cell.problem, cell.dtype)

    def _admitted(self, cells: Sequence[MeteredCell]) -> list[_ReadyCell]:
        """Those of the cells, which have their data in common, that are right on poisoned output.

        Raises DeviceLostError.
        """
        first = cells[0].chosen.cell
        folder = self._folders[first.kernel]
        data = first.problem, first.dtype, first.variant
        try:
            space = open_space(self._device, folder.workload, *data, self._plan.seed)
        except DeviceLostError:
            raise
        except TypedError as err:
            for cell in cells:
                cell.message = str(err)
            return []
        return [ready for cell in cells if (ready := self._bound(cell, folder, space)) is not None]

    def _bound(self, metered: MeteredCell, folder: KernelFolder, space: Space) -> _ReadyCell | None:
        cell = metered.chosen.cell
        try:
            version = folder.workload.version(cell)
            builds = build_versions(self._device, folder, cell.dtype, [version])
            if version.name in builds.failures:
                raise builds.failures[version.name]
            bound = space.bind(builds.programs[version.name], cell)
            proof = space.bind_proof(builds.programs[version.name], cell) or bound
            ready = _ReadyCell(metered, space, bound, proof)
            metered.message = _wrong(ready.fault())
            for _ in range(_WARMING):
                bound.run()
            metered.launches = _launches(bound.sample(1))
        except DeviceLostError:
            raise
        except TypedError as err:
            metered.message = str(err)
        return ready if metered.message is None else None

    def _measure_rounds(
        self, ready: Sequence[_ReadyCell], say: Callable[[str], None], keep: Callable[[], None]
    ) -> None:
        """Windows of all in rounds, then their outputs once more. Raises DeviceLostError."""
        plan = self._plan
        for number in range(1, plan.rounds + 1):
            say(f"energy of {len(ready)} cells, round {number} of {plan.rounds}")
            order = [one for one in ready if one.metered.message is None]
            self._random.shuffle(order)
            for one in order:
                try:
                    one.metered.windows.append(self._window(one))
                except DeviceLostError:
                    raise
                except (TypedError, NoEnergyError) as err:
                    one.metered.message = str(err)
            keep()
        for one in ready:
            if one.metered.message is None:
                one.metered.message = _wrong(one.fault())

    def _window(self, one: _ReadyCell) -> Window:
        launches, plan = one.metered.launches, self._plan
        return measure_window(
            lambda: one.bound.sample(launches), self._steps, self._clock, plan.warm_s, plan.window_s
        )


def _wrong(fault: str | None) -> str | None:
    return None if fault is None else f"The result is wrong: {fault}."


def _launches(launch_s: float) -> int:
    """Launches that make a sample of about SAMPLE_S, at least one."""
    return max(1, min(MOST_LAUNCHES, round(SAMPLE_S / max(launch_s, 1e-9))))


def _data_of(cell: MeteredCell, folders: Mapping[str, KernelFolder]) -> tuple[object, ...]:
    """What cells with the same data have in common."""
    c = cell.chosen.cell
    return c.kernel, c.dtype, c.problem, folders[c.kernel].workload.result_of(c.variant)


def _by_data(
    cells: Sequence[MeteredCell], folders: Mapping[str, KernelFolder]
) -> list[list[MeteredCell]]:
    """The cells with the same data together."""
    in_order = sorted(cells, key=lambda cell: repr(_data_of(cell, folders)))
    return [list(some) for _, some in groupby(in_order, lambda cell: _data_of(cell, folders))]
