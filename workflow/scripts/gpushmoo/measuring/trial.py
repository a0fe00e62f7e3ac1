"""Try the fastest cells on inputs that their kernel cannot know.

A kernel may cheat: it may keep its result, or find it in its output, and compute only in launches
that are verified. Therefore the fastest cell of each version that is close to its group's best is
launched on other inputs, drawn by a digest of the kernel itself. Its result must be right, and the
launch must not take longer than one whose result is already there. To save time, only the cells of
one problem are tried, which the digest also draws.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from statistics import median

from ..core.errors import DeviceLostError, OutOfDeviceMemoryError, TypedError
from ..core.schema import Status
from ..core.space import CellGroup, Problem
from ..devices.base import PreparedLaunch
from ..workloads.host_fed import HostFedWorkload
from .cell_memory import Space, open_space
from .events import CellRun, CellsStarted, Preparing, ShardResult, status_of
from .host_data import HostData
from .verify import CellSteps

log = logging.getLogger(__name__)

# Cells at most this much slower than the fastest may be in its tied set.
NEAR = 1.1
# A launch that has no answer yet is doubtful if it takes more than FACTOR times as long and MIN_S
# longer than one that has. A kernel works less in its samples if its launches are doubtful on
# DOUBTS new inputs, and then in all but ALIKE of PAIRS pairs: the machine may pause in some.
FACTOR, MIN_S = 2.0, 20e-6
# If there is such a problem, the drawn one has launches of at least this number of seconds.
TELLING_S = 100e-6
DOUBTS, PAIRS, ALIKE = 2, 12, 2


def first_seed(digest: str, seed: int) -> int:
    """Return the seed of the first inputs that a kernel is tried on.

    Parameters
    ----------
    digest
        Digest of the kernel's folder.
    seed
        Seed of the run.
    """
    return 1 + int.from_bytes(hashlib.sha256(f"{digest} {seed}".encode()).digest()[:6])


class Trial:
    """Tries measured cells on new inputs, and changes the status of versions that fail.

    Parameters
    ----------
    steps
        Steps on the open device.
    digest
        Digest of the kernel's folder, which determines the inputs.
    tried
        Keys of cells that an earlier process has tried.
    data
        Data on the host for the `first_seed`, if some was made ahead.
    """

    def __init__(
        self,
        steps: CellSteps,
        digest: str,
        tried: Iterable[str] = (),
        data: HostData | None = None,
    ) -> None:
        """Start with the seed before the `first_seed`. Each trial increments it."""
        self._steps = steps
        self._workload = steps.folder.workload
        self._data = data
        self._device = steps.device
        self._earlier = frozenset(tried)
        # Properties of the data that were tried last.
        self._seed = first_seed(digest, steps.sampling.job.seed) - 1

    def hold(self, runs: Sequence[CellRun]) -> None:
        """Try some of these cells.

        Parameters
        ----------
        runs
            Cells that have ended.

        Raises
        ------
        DeviceLostError
            If the device is lost.
        """
        begin = self._steps.clock()
        results: dict[str, dict[Problem, list[CellRun]]] = {}
        for run in runs:
            if run.status is Status.OK:
                alike = results.setdefault(self._workload.result_of(run.cell.variant), {})
                alike.setdefault(run.cell.problem, []).append(run)
        for alike in results.values():
            by_size = sorted(alike.values(), key=_size)
            telling = [some for some in by_size if min(map(_claimed_s, some)) >= TELLING_S]
            drawn = telling[self._seed % len(telling)] if telling else by_size[-1]
            self._hold(drawn, [run for some in by_size for run in some])
        log.info("trials took %.3f s", self._steps.clock() - begin)

    def _hold(self, some: Sequence[CellRun], alike: Sequence[CellRun]) -> None:
        """Try some cells of a problem. `alike` are all cells with the same result."""
        versions = {self._steps.version(r.cell) for r in some if r.cell.key in self._earlier}
        while contenders := self._contenders(some, versions):
            versions.update(self._steps.version(run.cell) for run in contenders)
            try:
                self._try(alike, contenders)
            except OutOfDeviceMemoryError as err:
                log.warning("no trial of %s: %s", contenders[0].cell.problem.label, err)

    def _contenders(self, runs: Sequence[CellRun], tried: set[str]) -> list[CellRun]:
        """Return the fastest cell of each untried version that is close to its group's best."""
        groups: dict[CellGroup, list[CellRun]] = {}
        for run in sorted((r for r in runs if r.status is Status.OK), key=_claimed_s):
            groups.setdefault(run.cell.group, []).append(run)
        found: dict[str, CellRun] = {}
        for some in groups.values():
            for run in some:
                if _claimed_s(run) <= NEAR * _claimed_s(some[0]):
                    found.setdefault(self._steps.version(run.cell), run)
        return [run for version, run in found.items() if version not in tried]

    def _try(self, alike: Sequence[CellRun], contenders: Sequence[CellRun]) -> None:
        suspects = contenders
        for _ in range(DOUBTS):
            suspects = self._doubtful(alike, suspects)
        for run in suspects:
            fault = self._confirmed(run)
            if fault is not None:
                self._overrule(alike, run, Status.TIMING_MISMATCH, fault)

    def _doubtful(self, alike: Sequence[CellRun], runs: Sequence[CellRun]) -> list[CellRun]:
        """Return the cells with a suspicious launch on new inputs. End those that are wrong."""
        if not runs:
            return []
        self._seed += 1
        space = self._open(runs[0])
        found = []
        for run in runs:
            try:
                bound = self._bound(run, space)
                first_s, fault = self._first(run, space, bound)
                if fault is not None:
                    self._overrule(alike, run, Status.WRONG_RESULT, fault)
                elif self._is_doubtful(run, space, bound, first_s):
                    found.append(run)
            except DeviceLostError:
                raise
            except TypedError as err:
                self._overrule(alike, run, status_of(err), str(err))
            self._steps.emit(ShardResult(tried={run.cell.key}))
        return found

    def _open(self, run: CellRun) -> Space:
        """Return memory with inputs of the present seed."""
        cell = run.cell
        self._steps.emit(Preparing(cell.problem))
        is_ahead = self._data is not None and self._data.seed == self._seed
        return open_space(
            self._device,
            self._workload,
            cell.problem,
            cell.dtype,
            cell.variant,
            self._seed,
            self._data if is_ahead else None,
        )

    def _bound(self, run: CellRun, space: Space) -> PreparedLaunch:
        self._steps.emit(CellsStarted((run.cell.key,)))
        bound = space.bind(self._steps.program(run.cell), run.cell)
        # Reads all memory: so each of two launches finds what was read before.
        space.damage()
        return bound

    def _first(self, run: CellRun, space: Space, bound: PreparedLaunch) -> tuple[float, str | None]:
        """Return the seconds of a launch on poisoned output, and the fault of its result."""
        proof = space.bind_proof(self._steps.program(run.cell), run.cell)
        space.forget()
        space.poison()
        first_s = bound.sample(1)
        if proof is not None:
            space.poison()
            proof.run()
        found = space.verdict(run.cell, proof or bound)
        return first_s, None if found.message is None else f"on other inputs: {found.message}"

    def _is_doubtful(
        self, run: CellRun, space: Space, bound: PreparedLaunch, first_s: float
    ) -> bool:
        """Return whether the first launch took longer than those in and after samples."""
        fed = isinstance(self._workload, HostFedWorkload)
        if fed or not _differ(first_s, _claimed_s(run)):
            return False
        return _differ(first_s, self._last(run, space, bound))

    def _last(self, run: CellRun, space: Space, bound: PreparedLaunch) -> float:
        """Return the time of a launch that finds its result, the shortest of three, in seconds."""
        for _ in range(2):
            bound.sample(run.launches or 1)

        def once() -> float:
            space.damage()
            space.answer({})
            return bound.sample(1)

        return min(once() for _ in range(3))

    def _confirmed(self, run: CellRun) -> str | None:
        """Return the fault of a cell whose first launches are almost all slower than later ones.

        Each of the two launches of a pair has separate memory, because allocation may slow down
        device and host for a moment.
        """
        pairs: list[tuple[float, float]] = []
        alike = 0
        while len(pairs) < PAIRS:
            self._seed += 1
            space = self._open(run)
            bound = self._bound(run, space)
            first_s, fault = self._first(run, space, bound)
            if fault is not None:
                return fault
            self._last(run, space, bound)
            left = space.left()
            # Frees its memory first.
            del space, bound
            space = self._open(run)
            bound = self._bound(run, space)
            space.answer(left)
            pairs.append((first_s, bound.sample(1)))
            del space, bound
            alike += not _differ(*pairs[-1])
            if alike > ALIKE or alike == len(pairs):
                return None
        first_s, later_s = (median(column) for column in zip(*pairs, strict=True))
        return (
            f"a launch takes {first_s:.3g} s on inputs and an output that are new, and "
            f"{later_s:.3g} s where its answer is there: it keeps it, or leaves out its work"
        )

    def _overrule(
        self, alike: Sequence[CellRun], tried: CellRun, status: Status, fault: str
    ) -> None:
        """Set the status and message of all cells of a version that failed."""
        version = self._steps.version(tried.cell)
        for run in alike:
            if run.status is Status.OK and self._steps.version(run.cell) == version:
                own = "" if run is tried else "another cell of its code: "
                self._steps.end(run, status, own + fault)


def _size(runs: Sequence[CellRun]) -> int:
    return runs[0].cell.problem.height * runs[0].cell.problem.width


def _claimed_s(run: CellRun) -> float:
    return median(run.samples_s)


def _differ(first_s: float, later_s: float) -> bool:
    """Return whether the first of two launches is much slower."""
    return first_s > FACTOR * later_s + MIN_S
