"""One problem on the device: its inputs, its output, and the expected output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.dtypes import DTYPES
from ..core.errors import OutOfDeviceMemoryError, TypedError, WorkloadError
from ..core.space import Cell, Problem
from ..devices.base import Device, PreparedLaunch, Program, Witnesses, fitted
from ..devices.buffers import OutOfBoundsWrites
from ..workloads.contract import ReducingWorkload, Workload
from ..workloads.host_fed import HostFedWorkload, Pipeline, StreamSetup, cuts
from .host_pipeline import Feed, Pool

Array = npt.NDArray[Any]

# Words that are read back at a time to find the first wrong one; the content of unwritten ones.
CHUNK, POISON = 2**20, 0xFFFFFFFF


@dataclass(frozen=True)
class Verdict:
    """The number of wrong words in the output and around buffers, and a sentence on all faults."""

    wrong_words: int
    message: str | None


# The seconds and verdict of a run on poisoned output, or its error.
Judged = tuple[float, Verdict] | TypedError


class BufferWatch:
    """The buffers of launches by name, and which of them are `inputs` that must not change."""

    def __init__(
        self,
        device: Device,
        buffers: Mapping[str, Any],
        inputs: Mapping[str, Any],
        restore: Callable[[], None],
    ) -> None:
        """`restore` writes anew all that launches must not write."""
        self._device, self.buffers, self.inputs = device, buffers, inputs
        self._restore = restore
        self._sums = device.checksums(list(inputs.values()))

    def damage(self, wrong: int = 0, clauses: Sequence[str] = ()) -> Verdict:
        """The faults of a run, given those of its output; damage is mended for the next cell."""
        strays = self._device.strays(list(self.buffers.values()))
        for buffer, stray in zip(self.buffers.values(), strays, strict=True):
            if stray:
                self._device.guard(buffer)
        sums = self._device.checksums(list(self.inputs.values()))
        words, more = self.said(strays, sums)
        if more:
            self._restore()
        return Verdict(wrong + words, "; ".join([*clauses, *more]) or None)

    def said(
        self, strays: Sequence[OutOfBoundsWrites], sums: Sequence[int]
    ) -> tuple[int, list[str]]:
        """The number of words written around buffers, and a clause for each fault."""
        words, clauses = 0, []
        for name, stray in zip(self.buffers, strays, strict=True):
            words += stray.before + stray.past
            if stray.past:
                clauses.append(f"wrote {_count(stray.past)} past the end of '{name}'")
            if stray.before:
                clauses.append(f"wrote {_count(stray.before)} before the beginning of '{name}'")
        changed = [n for n, b, a in zip(self.inputs, self._sums, sums, strict=True) if b != a]
        return words, clauses + [f"changed its input '{name}'" for name in changed]


def _count(words: int) -> str:
    return f"{words} word{'s' * (words != 1)}"


def first_difference(
    device: Device, buffer: Any, expected: Any, shape: tuple[int, ...], scalar: np.dtype[Any]
) -> str:
    """A clause on the first wrong element of `buffer`, an array of `shape` and `scalar`."""
    total = int(np.prod(shape)) * scalar.itemsize // 4
    for begin in range(0, total, CHUNK):
        count = min(CHUNK, total - begin)
        found, wanted = (device.words(b, begin, count) for b in (buffer, expected))
        if (found == wanted).all():
            continue
        word = int(np.argmax(found != wanted))
        # An element may be a part of a word, or several words.
        per_word = max(1, 4 // scalar.itemsize)
        first = word * 4 // scalar.itemsize
        parts = slice(first, first + per_word)
        is_wrong = found.view(scalar)[parts] != wanted.view(scalar)[parts]
        element = first + int(np.argmax(is_wrong))
        place = np.unravel_index(begin * 4 // scalar.itemsize + element, shape)
        got, due = found.view(scalar)[element], wanted.view(scalar)[element]
        hint = " (never written)" if found[word] == POISON else _hint(got, due)
        return f"the first at {[int(i) for i in place]}: expected {due!s}, found {got!s}{hint}"
    return "none when it was looked for"


# Last bits in which a sum of another order or a fused multiply-add may differ.
_LAST_BITS = 16
_ROUNDED = " (rounding? fused multiply-add?)"


def _hint(got: Any, due: Any) -> str:
    """What a wrong value looks like, in brackets; "" where it looks like nothing."""
    if np.issubdtype(due.dtype, np.floating):
        with np.errstate(invalid="ignore"):
            return _ROUNDED if abs(got - due) <= _LAST_BITS * np.spacing(abs(due)) else ""
    less = int(due) - int(got)
    if due.itemsize < 4:
        return _ROUNDED if abs(less) == 1 else ""
    # The poison is -1.
    return " (added to an output that nothing had cleared?)" if less == 1 else ""


# Streams of the copy of host data that is timed for comparison, and elements at a time.
COPY_STREAMS, COPY_CHUNK = 4, 2**22


class Space(ABC):
    """The memory in which cells of one problem, element type and result are measured.

    `words` counts the 32-bit words of the output. `copy` is the memcpy baseline, timed for
    comparison: of as many words on the device, or of the inputs from the host.
    """

    words = 1
    copy: PreparedLaunch

    @abstractmethod
    def bind(self, program: Program, cell: Cell) -> PreparedLaunch:
        """The launch of `cell` that is timed. Raises as `Device.bind` does."""

    def bind_proof(self, program: Program, cell: Cell) -> PreparedLaunch | None:
        """The launch of `cell` that is verified, if it is not the one that is timed."""
        return None

    @abstractmethod
    def poison(self) -> None:
        """Overwrite the output with words that no verified output holds."""

    @abstractmethod
    def verdict(self, cell: Cell, proof: PreparedLaunch) -> Verdict:
        """The faults of a run of `proof`, in the output or elsewhere."""

    def prove_together(
        self, bounds: Sequence[PreparedLaunch], compared: bool
    ) -> Sequence[Judged] | None:
        """Run each on poisoned output; None if each must be verified by itself.

        The output is `compared`, or ignored. The list ends with the first run that wrote outside of
        the output, which is mended: its damage must not count against later runs.
        """
        return None

    def damage(self) -> Verdict:
        """Mend and describe writes outside of the output."""
        return Verdict(0, None)


def open_space(
    device: Device, workload: Workload, problem: Problem, dtype: str, variant: str, seed: int
) -> Space:
    """The memory for cells of `variant` and of others with its result.

    Raises OutOfDeviceMemoryError or LaunchRefusedError when device or host cannot hold it.
    """

    def make() -> Mapping[str, Array]:
        # Every shard of a problem has the same data.
        rng = np.random.default_rng([seed, problem.height, problem.width])
        return workload.inputs(problem, dtype, rng)

    try:
        if isinstance(workload, HostFedWorkload):
            return FedSpace(device, workload, make())
        if isinstance(workload, ReducingWorkload):
            return ReducedSpace(device, workload, problem, dtype, make)
        return Workspace(device, workload, problem, dtype, variant, make)
    except MemoryError as err:
        what = f"{problem.height} x {problem.width} {dtype}"
        raise OutOfDeviceMemoryError(f"{what} does not fit this host's memory ({err}).") from err


class Workspace(Space):
    """Buffers and images on the device; see `Space`."""

    def __init__(
        self,
        device: Device,
        workload: Workload,
        problem: Problem,
        dtype: str,
        variant: str,
        make: Callable[[], Mapping[str, Array]],
    ) -> None:
        """Upload the inputs from `make` and the expected output. Raises as `open_space` does."""
        self._device, self._workload, kind = device, workload, DTYPES[dtype]
        self._make, self._variant, inputs = make, variant, make()
        expected = workload.expected(inputs, variant)
        check_output(workload, expected, problem, dtype)
        self._form = expected.shape, expected.dtype
        self.words = expected.nbytes // 4
        images = workload.images_of(variant)
        self._buffers = {
            name: device.upload_image(array, kind)
            if name in images
            else device.upload(whole_words(workload, name, array))
            for name, array in inputs.items()
        }
        if workload.output in images:
            self._output = device.allocate_image(problem, kind)
        else:
            self._output = device.allocate(expected.nbytes)
        self._buffers[workload.output] = self._output
        self._expected = device.upload(expected)
        # An image is copied to or from a buffer, not to another image.
        barred = images if workload.output in images else frozenset()
        same_size = [n for n in inputs if inputs[n].nbytes == expected.nbytes and n not in barred]
        source = self._buffers[same_size[0]] if same_size else self._expected
        self.copy = device.bind_copy(source, self._output)
        plain = {n: b for n, b in self._buffers.items() if n not in images}
        self._watched = {n: b for n, b in plain.items() if n in inputs and n != workload.output}
        self._watch = BufferWatch(device, plain, self._watched, self._restore)

    def lent(self, workload: Workload) -> Workspace:
        """The same buffers for another `workload` with the same data."""
        lent = copy(self)
        lent._workload = workload
        return lent

    def _restore(self) -> None:
        """Write the inputs that are buffers, and the expected output, anew."""
        inputs = self._make()
        expected = self._workload.expected(inputs, self._variant)
        pairs = [(inputs[name], self._buffers[name]) for name in self._watched]
        for array, buffer in [*pairs, (expected, self._expected)]:
            self._device.bind_copy(self._device.upload(array), buffer).run()

    def bind(self, program: Program, cell: Cell) -> PreparedLaunch:
        """The cell's launch on these buffers."""
        launch = fitted(self._workload.launch(cell), program, self._device.info)
        return self._device.bind(program, launch, self._buffers)

    def bind_proof(self, program: Program, cell: Cell) -> PreparedLaunch | None:
        """The workload's proof if it is another launch."""
        if type(self._workload).proof is Workload.proof:
            return None
        proof = self._workload.proof(cell)
        if proof == self._workload.launch(cell):
            return None
        proof = fitted(proof, program, self._device.info)
        return self._device.bind(program, proof, self._buffers)

    def poison(self) -> None:
        """Overwrite the output with ones, a NaN in every float type."""
        self._device.poison(self._output)

    def verdict(self, cell: Cell, proof: PreparedLaunch) -> Verdict:
        """Compared bit by bit, on the device."""
        wrong, clauses = self._device.mismatches(self._output, self._expected), []
        if wrong:
            first = first_difference(self._device, self._output, self._expected, *self._form)
            clauses = [f"{wrong} of {self.words} words differ, {first}"]
        return self._watch.damage(wrong, clauses)

    def prove_together(self, bounds: Sequence[PreparedLaunch], compared: bool) -> list[Judged]:
        """Each compared bit by bit."""
        judged: list[Judged] = []
        guarded, inputs = self._watch.buffers.values(), self._watch.inputs.values()
        witnesses = Witnesses(self._output, self._expected, [*guarded], [*inputs])
        for proven in self._device.prove_all(bounds, witnesses):
            if isinstance(proven, TypedError):
                judged.append(proven)
                continue
            wrong = proven.wrong_words if compared else 0
            clauses = [f"{wrong} of {self.words} words differ"] if wrong else []
            words, more = self._watch.said(proven.strays, proven.sums)
            message = "; ".join([*clauses, *more]) or None
            judged.append((proven.seconds, Verdict(wrong + words, message)))
            if more:
                self.damage()
                break
        return judged

    def damage(self) -> Verdict:
        """Past a buffer, or into an input."""
        return self._watch.damage()


def check_output(workload: Workload, expected: Array, problem: Problem, dtype: str) -> None:
    """Raise WorkloadError when an expected output has not the form of the output."""
    shape, scalar = workload.output_form(problem, dtype)
    name = f"{workload.name}: reference has"
    if expected.shape != shape:
        raise WorkloadError(f"{name} shape {expected.shape}, the output {shape}")
    if expected.dtype != scalar:
        raise WorkloadError(f"{name} dtype {expected.dtype}, the output {scalar}")


def whole_words(workload: Workload, name: str, array: Array) -> Array:
    """The array. Raises WorkloadError unless it consists of whole 32-bit words."""
    if array.nbytes % 4:
        raise WorkloadError(
            f"{workload.name}: inputs gives {array.nbytes} bytes for '{name}'; a buffer is of "
            "whole 32-bit words"
        )
    return array


class ReducedSpace(Space):
    """Buffers on the device, by name, of a workload with one number as its result; see `Space`."""

    def __init__(
        self,
        device: Device,
        workload: ReducingWorkload,
        problem: Problem,
        dtype: str,
        make: Callable[[], Mapping[str, Array]],
    ) -> None:
        """Upload the inputs from `make`. Raises as `open_space` does."""
        self._device, self._workload, self._make = device, workload, make
        inputs = make()
        self._known = workload.known(inputs)
        self._result = np.zeros(1, DTYPES[dtype].scalar)
        self._written = [device.allocate(self._result.nbytes)]
        self.buffers = {name: device.upload(array) for name, array in inputs.items()}
        self.buffers[workload.output] = self._written[0]
        for name, nbytes in workload.scratch(problem, dtype).items():
            self.buffers[name] = device.allocate(nbytes)
            self._written.append(self.buffers[name])
        self.copy = device.bind_copy(device.upload(self._result), self._written[0])
        read = {name: self.buffers[name] for name in inputs}
        self._watch = BufferWatch(device, self.buffers, read, self._restore)

    def _restore(self) -> None:
        for name, array in self._make().items():
            self._device.bind_copy(self._device.upload(array), self.buffers[name]).run()

    def bind(self, program: Program, cell: Cell) -> PreparedLaunch:
        """The cell's launch, or the library's function, on these buffers."""
        call = self._workload.library(cell)
        if call is not None:
            return self._device.bind_library(call, self.buffers)
        return self._device.bind(program, self._workload.launch(cell), self.buffers)

    def poison(self) -> None:
        """Overwrite all that a launch writes before it reads it with ones."""
        for buffer in self._written:
            self._device.poison(buffer)

    def value(self, proof: PreparedLaunch) -> float:
        """The number that a run of `proof` left."""
        with self._device.open_stream() as stream:
            stream.copy_out(self._result, self._written[0])
            stream.wait()
        return float(self._result[0])

    def verdict(self, cell: Cell, proof: PreparedLaunch) -> Verdict:
        """Compared with what the order of summation explains."""
        message = self._workload.fault(self.value(proof), cell, self._known)
        faults = [] if message is None else [message]
        return self._watch.damage(self.words * len(faults), faults)

    def damage(self) -> Verdict:
        """Past a buffer, or into an input."""
        return self._watch.damage()


class FedSpace(Space):
    """Arrays on the host, by name, pinned and not, and shared streams; see `Space`."""

    def __init__(
        self, device: Device, workload: HostFedWorkload, inputs: Mapping[str, Array]
    ) -> None:
        """Copy `inputs` to pinned and to ordinary memory."""
        self._workload = workload
        self.known = workload.known(inputs)
        self.arrays = {
            pinned: {name: device.host_array(array, pinned) for name, array in inputs.items()}
            for pinned in (True, False)
        }
        self._pool = Pool(device, tuple(inputs))
        n = next(iter(inputs.values())).size
        pieces = cuts(n, COPY_STREAMS, 1, COPY_CHUNK)
        streams = 1 + max((p.stream for p in pieces), default=0)
        copied = Pipeline(streams, pieces, 0, n, n, True, StreamSetup.BEFORE)
        self.copy: PreparedLaunch = self._feed(None, copied, lambda _: 0.0, lambda *_: 0.0)

    def __enter__(self) -> FedSpace:
        """The space itself; its streams and their memory are given back at the end."""
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.__exit__()

    def part(self, n: int) -> FedSpace:
        """The first `n` elements of the same arrays, and the same streams."""
        part = copy(self)
        part.arrays = {
            pinned: {name: array[:n] for name, array in arrays.items()}
            for pinned, arrays in self.arrays.items()
        }
        part.known = self._workload.known(part.arrays[False])
        return part

    def _feed(
        self,
        program: Any,
        pipeline: Pipeline,
        host_part: Callable[[Mapping[str, Array]], Any],
        total: Callable[[Array, Any], float],
    ) -> Feed:
        arrays = self.arrays[pipeline.pinned]
        return Feed(self._pool, program, pipeline, arrays, host_part, total)

    def bind(self, program: Program, cell: Cell) -> Feed:
        """The cell's pipeline on these arrays."""
        w = self._workload
        parts = (partial(w.host_part, cell), partial(w.total, cell))
        return self._feed(program, w.pipeline(cell), *parts)

    def bind_proof(self, program: Program, cell: Cell) -> Feed:
        """The cell's pipeline in memory that is poisoned before."""
        return replace(self.bind(program, cell), poisoned=True)

    def poison(self) -> None:
        """Do nothing: the proof allocates and poisons its own memory."""

    def value(self, proof: PreparedLaunch) -> float:
        """The number that a run of `proof` gave."""
        assert isinstance(proof, Feed)
        return proof.value

    def verdict(self, cell: Cell, proof: PreparedLaunch) -> Verdict:
        """Compared with what the order of summation explains."""
        message = self._workload.fault(self.value(proof), cell, self.known)
        return Verdict(0 if message is None else self.words, message)
