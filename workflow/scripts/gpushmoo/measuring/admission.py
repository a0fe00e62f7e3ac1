"""Which cells may be sampled: bound, verified on poisoned output, launched once on the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ..core.errors import TypedError
from ..core.schema import Status
from ..devices.base import Bound
from .buffers import Judged, Space
from .events import CellRun, Timed
from .steps import TOGETHER_S, CellSteps

# A cell whose first launch takes longer is launched twice, and the shorter one believed: it decides
# how many launches make a sample, and a pause that nothing tells of (a virtual machine's) may be in
# one of them.
LONG_LAUNCH_S = 0.1

BoundOf = Callable[[CellRun], Bound]
Outcomes = Sequence[Judged | TypedError]


class Admission:
    """Admits cells to being sampled, and verifies them; a cell that fails has its status."""

    def __init__(self, steps: CellSteps) -> None:
        self._steps = steps

    def admit(self, runs: Sequence[CellRun], space: Space) -> None:
        """Bind each, launch it once on poisoned output and verify that, time one launch of it."""
        for run in runs:
            self._steps.guarded(run, partial(self._bind, run, space))
        for some in self._growing([run for run in runs if run.status is None]):
            if self._steps.settings.verifies_before:
                self._verify_some(some, space)
            self._look_around([run for run in some if run.status is None], space)
            self._time([run for run in some if run.status is None])
            for run in some:
                self._steps.step(run)

    def verify(self, runs: Sequence[CellRun], space: Space) -> None:
        """Launch each on poisoned output and compare that with the expected one."""
        for some in self._growing(runs):
            self._verify_some(some, space)

    def _growing(self, runs: Sequence[CellRun]) -> Iterator[Sequence[CellRun]]:
        """The runs, more and more at a time as long as what is done with them takes little time.

        How long a launch takes is not known before it.
        """
        begin, n = 0, 1
        while begin < len(runs):
            before = self._steps.clock()
            yield runs[begin : begin + n]
            begin += n
            quick = self._steps.clock() - before < TOGETHER_S / 2
            n = min(self._steps.together, 2 * n) if quick else max(1, n // 2)

    def _bind(self, run: CellRun, space: Space) -> None:
        program, launch = self._steps.program(run.cell), run.launch
        run.bound = space.bind(program, run.cell)
        run.proof = space.bind_proof(program, run.cell) or run.bound
        run.registers = program.registers(launch.entry)
        run.resident_per_unit = program.resident_per_unit(
            launch.entry, launch.threads, launch.shared_bytes
        )

    def _verify_some(self, runs: Sequence[CellRun], space: Space) -> None:
        """All of them without waiting between; what is not as it must be then, alone."""
        alone = partial(self._verify, space)
        for run in self._judged(runs, _proof, space.prove_together, alone):
            self._steps.guarded(run, partial(alone, run))

    def _look_around(self, runs: Sequence[CellRun], space: Space) -> None:
        """What is timed may write where the launch that was verified did not."""
        others = [run for run in runs if run.proof is not run.bound]
        alone = partial(self._watch, space)
        for run in self._judged(others, _timed, space.harm_together, alone):
            self._steps.guarded(run, partial(alone, run))

    def _judged(
        self,
        runs: Sequence[CellRun],
        bound_of: BoundOf,
        together: Callable[[Sequence[Bound]], Outcomes | None],
        alone: Callable[[CellRun], None],
    ) -> Sequence[CellRun]:
        """Judge runs by what they do together; the runs of which that tells nothing."""
        while len(runs) > 1:
            bounds = [bound_of(run) for run in runs]
            _, outcomes = self._steps.undisturbed(runs, partial(together, bounds))
            if outcomes is None:
                break
            for run, outcome in zip(runs, outcomes, strict=False):
                self._judge(run, outcome, partial(alone, run))
            runs = runs[len(outcomes) :]
        return runs

    def _judge(self, run: CellRun, outcome: Judged | TypedError, alone: Callable[[], None]) -> None:
        """By what it did among others, none of which harmed it."""
        if isinstance(outcome, TypedError):
            self._steps.end_by(run, outcome)
            return
        run.verified_words = outcome.words
        run.wrong_words = words = outcome.verdict.wrong_words
        message = outcome.verdict.message
        if message is not None or outcome.seconds > self._steps.settings.cell_timeout_s:
            # Alone, to say where, and whether a pause was in it.
            self._steps.guarded(run, alone)
        if message is not None and run.status is None:
            # What was wrong once is wrong.
            run.wrong_words = words
            self._steps.end(run, Status.WRONG_RESULT, message)

    def _verify(self, space: Space, run: CellRun) -> None:
        """Launch on poisoned output and compare with the expected one, both on the device.

        A launch that takes too long is launched once more before it is a timeout.
        """
        proof, slowest_s = _proof(run), self._steps.settings.cell_timeout_s
        launch = partial(self._poisoned_launch, proof, space)
        _, took = self._steps.undisturbed([run], launch)
        if took > slowest_s:
            _, took = self._steps.undisturbed([run], launch)
        verdict = space.verdict(run.cell, proof)
        run.verified_words, run.wrong_words = space.words, verdict.wrong_words
        if verdict.message is not None:
            self._steps.end(run, Status.WRONG_RESULT, verdict.message)
        elif took > slowest_s:
            self._steps.end(run, Status.TIMEOUT, f"one launch took {took:.3g} s")

    def _poisoned_launch(self, proof: Bound, space: Space) -> float:
        """Seconds of the host's clock that a launch takes."""
        space.poison()
        before = self._steps.clock()
        proof.run()
        return self._steps.clock() - before

    def _watch(self, space: Space, run: CellRun) -> None:
        """Launch what is timed, alone, and see what it wrote."""
        self._steps.undisturbed([run], _timed(run).run)
        verdict = space.damage()
        if verdict.message is not None:
            run.wrong_words = verdict.wrong_words
            self._steps.end(run, Status.WRONG_RESULT, verdict.message)

    def _time(self, runs: Sequence[CellRun]) -> None:
        """One launch of each on the clock."""
        _, outcomes = self._steps.outcomes(runs) if runs else (0.0, [])
        for run, outcome in zip(runs, outcomes, strict=True):
            if isinstance(outcome, TypedError):
                self._steps.end_by(run, outcome)
                continue
            seconds = self._again(run, outcome) if outcome > LONG_LAUNCH_S else outcome
            if not seconds > 0.0:
                self._steps.end_by_clock(run, seconds)
                continue
            run.launch_s = seconds
            self._steps.emit(Timed(run.cell.key, seconds))

    def _again(self, run: CellRun, seconds: float) -> float:
        """The shorter of `seconds` and one more launch."""
        _, [outcome] = self._steps.outcomes([run])
        return seconds if isinstance(outcome, TypedError) else min(seconds, outcome)


def _proof(run: CellRun) -> Bound:
    assert run.proof is not None
    return run.proof


def _timed(run: CellRun) -> Bound:
    assert run.bound is not None
    return run.bound
