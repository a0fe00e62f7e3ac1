"""The memory of one problem on the device: its inputs, its output, and the expected output."""

from __future__ import annotations

import gc
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
from ..devices.base import (
    Device,
    PreparedLaunch,
    Program,
    bind_library,
    fitted,
    images_of,
    streams_of,
)
from ..devices.memory import POISON_BYTES, Deviation, OutOfBoundsWrites, ProofBuffers, ProofResult
from ..workloads.contract import ReducingWorkload, Workload, ceil_div
from ..workloads.host_fed import HostFedWorkload, Pipeline, StreamSetup, cuts
from .host_data import HostData
from .host_pipeline import Feed, Pool
from .outputs import READ_FIRST, CheckedOutput, Wrong, device_bounds

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Verdict:
    """Result of the verification of a launch.

    Attributes
    ----------
    wrong_words
        Number of wrong 32-bit words in the output and around buffers. For an output with a
        tolerance, wrong elements count instead.
    message
        Sentence on all faults, or None if there is no fault.
    worst
        Largest error as a share of the tolerance, or None without a tolerance.
    """

    wrong_words: int
    message: str | None
    worst: float | None = None


# The seconds and verdict of a run on poisoned output, or its error.
Judged = tuple[float, Verdict] | TypedError


class BufferWatch:
    """Detects writes outside of the buffers of launches, and into inputs.

    Parameters
    ----------
    device
        The device.
    buffers
        Buffers by name.
    inputs
        Those buffers that launches must not change.
    restore
        Writes the content again that launches must not change.
    """

    def __init__(
        self,
        device: Device,
        buffers: Mapping[str, Any],
        inputs: Mapping[str, Any],
        restore: Callable[[], None],
    ) -> None:
        """Compute checksums of the inputs."""
        self._device, self.buffers, self.inputs = device, buffers, inputs
        self._restore = restore
        self._sums = device.checksums(list(inputs.values()))

    def damage(self, wrong: int = 0, clauses: Sequence[str] = ()) -> Verdict:
        """Return all faults of a run, and restore damaged buffers.

        Parameters
        ----------
        wrong
            Number of wrong words in the output.
        clauses
            Faults of the output.
        """
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
        """Return the number of words written around buffers, and a clause for each fault.

        Parameters
        ----------
        strays
            Writes outside of each buffer.
        sums
            Checksum of each input after a run.
        """
        words = 0
        clauses = []
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


# Streams of the copy of host data that is timed for comparison, and elements at a time.
COPY_STREAMS = 4
COPY_CHUNK = 2**22


class Space(ABC):
    """Memory in which the cells of one problem, element type and result are measured.

    `words` is the number of 32-bit words of the output. `copy` is the memcpy baseline: a copy of
    this number of words on the device, or of the inputs from the host.
    """

    words = 1
    copy: PreparedLaunch
    _device: Device
    _watch: BufferWatch
    # All that a launch writes before it reads it.
    _written: Sequence[Any] = ()

    @abstractmethod
    def bind(self, program: Program, cell: Cell) -> PreparedLaunch:
        """Return the launch of `cell` that is timed. Errors are those of `Device.bind`."""

    def bind_proof(self, program: Program, cell: Cell) -> PreparedLaunch | None:
        """Return the launch of `cell` that is verified, or None if it is the one that is timed."""
        return None

    def poison(self) -> None:
        """Overwrite the output with words that no verified output contains."""
        for buffer in self._written:
            self._device.poison(buffer)

    @abstractmethod
    def forget(self) -> None:
        """Restore the first content of memory that launches may write and that is not compared."""

    def left(self) -> Mapping[str, Array]:
        """Return the present content of memory that launches may write and that is not compared."""
        return {}

    @abstractmethod
    def answer(self, left: Mapping[str, Array]) -> None:
        """Write all data that would allow a launch to skip its work.

        These are the right result, and `left`, the content that an earlier launch has left in
        memory that is not compared.
        """

    @abstractmethod
    def verdict(self, cell: Cell, proof: PreparedLaunch) -> Verdict:
        """Return the faults after a run of `proof`, in the output or elsewhere.

        Parameters
        ----------
        cell
            The cell.
        proof
            Its launch, which has run on poisoned output.
        """

    def prove_together(
        self, bounds: Sequence[PreparedLaunch], compared: bool
    ) -> Sequence[Judged] | None:
        """Run several launches, each on poisoned output, without a wait between them.

        Parameters
        ----------
        bounds
            The launches.
        compared
            Whether to compare the output.

        Returns
        -------
        list or None
            Result of each run. The list ends with the first run that wrote outside of the output.
            Its damage is repaired, so that it does not count against later runs. None if each
            launch must be verified separately.
        """
        return None

    def damage(self) -> Verdict:
        """Return faults outside of the output, and restore the content there."""
        return self._watch.damage()


def open_space(
    device: Device,
    workload: Workload,
    problem: Problem,
    dtype: str,
    variant: str,
    seed: int,
    data: HostData | None = None,
) -> Space:
    """Allocate and fill the memory for cells with this result.

    Parameters
    ----------
    device
        The device.
    workload
        The kernel.
    problem
        Size of the problem.
    dtype
        Name of the element type.
    variant
        Variant that determines the output.
    seed
        Seed of the inputs.
    data
        Data on the host, by default made from the seed.

    Raises
    ------
    OutOfDeviceMemoryError
        If the device or the host has too little memory.
    LaunchConfigError
        If the device cannot hold an image of this size.
    """
    host = HostData(workload, dtype, seed) if data is None else data
    make = partial(host.inputs, problem)
    result = host.result(problem, variant)
    # Memory that was left is in reference cycles, and two spaces may not fit the device.
    gc.collect()
    try:
        if isinstance(workload, HostFedWorkload):
            return FedSpace(device, workload, make(), result)
        if isinstance(workload, ReducingWorkload):
            return ReducedSpace(device, workload, problem, dtype, make, result)
        return Workspace(device, workload, problem, dtype, variant, make, result)
    except MemoryError as err:
        what = f"{problem.height} x {problem.width} {dtype}"
        raise OutOfDeviceMemoryError(f"{what} does not fit this host's memory ({err}).") from err


class Workspace(Space):
    """Buffers and images on the device, see `Space`.

    Parameters
    ----------
    device
        The device.
    workload
        The kernel.
    problem
        Size of the problem.
    dtype
        Name of the element type.
    variant
        Variant that determines the output.
    make
        Returns the inputs by name.
    expected
        Expected outputs by name, if they are known.
    """

    def __init__(
        self,
        device: Device,
        workload: Workload,
        problem: Problem,
        dtype: str,
        variant: str,
        make: Callable[[], Mapping[str, Array]],
        expected: Mapping[str, Array] | None = None,
    ) -> None:
        """Upload inputs and expected outputs. Errors are those of `open_space`."""
        self._device = device
        self._workload = workload
        kind = DTYPES[dtype]
        self._make = make
        self._variant = variant
        inputs = make()
        expected = workload.outputs(inputs, variant) if expected is None else expected
        if type(workload).outputs is Workload.outputs:
            check_output(workload, expected[workload.output], problem, dtype)
        images = workload.images_of(variant)
        self._buffers = {
            name: images_of(device).upload(array, kind) if name in images else device.upload(array)
            for name, array in inputs.items()
        }
        self._outputs = []
        for name, array in expected.items():
            content = device.upload(inputs[name]) if name in inputs else None
            if name not in self._buffers:
                is_image = name in images
                self._buffers[name] = (
                    images_of(device).allocate(problem, kind)
                    if is_image
                    else device.allocate(array.nbytes)
                )
            limit = workload.limit_of(name)
            buffer = self._buffers[name]
            try:
                output = CheckedOutput.upload(device, name, array, limit, buffer, content)
            except ValueError as err:
                raise WorkloadError(f"{workload.name}: output '{name}': {err}") from err
            self._outputs.append(output)
        self.words = sum(output.words for output in self._outputs)
        twice = any(output.twice for output in self._outputs)
        self._twice = twice and not workload.reads_poison
        # An image is copied to or from a buffer, not to another image.
        if self._outputs:
            main = self._outputs[0].on_device
            size = next(iter(expected.values())).nbytes
            barred = {*(images if self._outputs[0].name in images else ()), self._outputs[0].name}
            same_size = [n for n in inputs if inputs[n].nbytes == size and n not in barred]
            source = self._buffers[same_size[0]] if same_size else main.expected
            self.copy = device.bind_copy(source, main.buffer)
        else:
            spare = [device.upload(np.zeros(1, np.uint32)) for _ in range(2)]
            self.copy = device.bind_copy(*spare)
        plain = {n: b for n, b in self._buffers.items() if n not in images}
        read = {n: b for n, b in plain.items() if n in inputs and n not in expected}
        self._free = {n: read.pop(n) for n in workload.unwatched if n in read}
        self._watched = read
        self._watch = BufferWatch(device, plain, self._watched, self._restore)

    def leased(self, workload: Workload, variant: str) -> Workspace:
        """Return the same memory for another kernel or variant that has the same data."""
        leased = copy(self)
        leased._workload = workload
        leased._variant = variant
        return leased

    def _restore(self) -> None:
        """Write inputs and expected outputs again."""
        inputs = self._make()
        expected = self._workload.outputs(inputs, self._variant)
        self._write(inputs, self._watched)
        pairs = []
        for output in self._outputs:
            array = expected[output.name]
            own = output.on_device
            pairs.append((array, own.expected))
            if own.tolerance is not None:
                pairs.append((device_bounds(output.limit), own.tolerance.bounds))
            if own.content is not None:
                pairs.append((inputs[output.name], own.content))
        for array, buffer in pairs:
            self._device.bind_copy(self._device.upload(array), buffer).run()

    def _write(self, inputs: Mapping[str, Array], buffers: Mapping[str, Any]) -> None:
        for name, buffer in buffers.items():
            self._device.bind_copy(self._device.upload(inputs[name]), buffer).run()

    def bind(self, program: Program, cell: Cell) -> PreparedLaunch:
        """Return the cell's launch on these buffers."""
        launch = fitted(self._workload.launch(cell), program, self._device.info)
        renewed = [o.on_device for o in self._outputs if o.on_device.content is not None]

        def renew() -> None:
            for output in renewed:
                self._device.queue_preparation(output)

        if not renewed or not self._workload.renews:
            return self._device.bind(program, launch, self._buffers)
        return self._device.bind(program, launch, self._buffers, renew)

    def bind_proof(self, program: Program, cell: Cell) -> PreparedLaunch | None:
        """Return the workload's separate launch for verification, if it has one."""
        if type(self._workload).proof is Workload.proof:
            return None
        proof = self._workload.proof(cell)
        if proof == self._workload.launch(cell):
            return None
        proof = fitted(proof, program, self._device.info)
        return self._device.bind(program, proof, self._buffers)

    def poison(self) -> None:
        """Fill outputs with the content that the kernel reads, or with ones in all bits (NaN)."""
        if self._workload.has_check:
            self.forget()
        for output in self._outputs:
            self._device.prepare(output.on_device)

    def forget(self) -> None:
        """Write again the inputs that launches may change."""
        if self._free:
            self._write(self._make(), self._free)

    def left(self) -> dict[str, Array]:
        """Return the present content of the inputs that launches may change, by name."""
        forms = self._make() if self._free else {}
        return {name: self._content(name, forms[name]) for name in self._free}

    def answer(self, left: Mapping[str, Array]) -> None:
        """Write the expected outputs, or the content that launches find, and `left` into inputs."""
        self._write(left, {name: self._free[name] for name in left})
        for output in self._outputs:
            own = output.on_device
            source = own.expected if own.content is None else own.content
            self._device.bind_copy(source, own.buffer).run()

    def verdict(self, cell: Cell, proof: PreparedLaunch) -> Verdict:
        """Compare the outputs on the device.

        If the poison may be a right value, `proof` runs again with another poison.
        """
        deviations = [self._device.compare(output.on_device) for output in self._outputs]
        if self._twice and not any(found.wrong for found in deviations):
            for output in self._outputs:
                self._device.prepare(output.on_device, POISON_BYTES[1])
            proof.run()
            deviations = [self._device.compare(output.on_device) for output in self._outputs]
        wrong, clauses, worst = self._said(deviations)
        of_wrong = [o for o, found in zip(self._outputs, deviations, strict=True) if found.wrong]
        firsts = self._firsts(of_wrong, proof)
        said = [f"{clause}, {first}" for clause, first in zip(clauses, firsts, strict=True)]
        if self._workload.has_check and not wrong:
            fault = self._workload.check(cell, self._contents())
            said += [] if fault is None else [fault]
        return replace(self._watch.damage(wrong, said), worst=worst)

    def _firsts(self, outputs: Sequence[CheckedOutput], proof: PreparedLaunch) -> list[str]:
        """Return a clause on the first wrong element of each of these outputs."""
        wrong = [output.first(self._device) for output in outputs]
        # The launches that ask whether a value depends on the poison come after all are read.
        return [
            "none when it was looked for"
            if one is None
            else one.said + (READ_FIRST if self._reads(output, one, proof) else one.hint)
            for output, one in zip(outputs, wrong, strict=True)
        ]

    def _reads(self, output: CheckedOutput, wrong: Wrong, proof: PreparedLaunch) -> bool:
        """Return whether the value of a wrong element depends on the poison in the output.

        That is so if a second run with the same poison gives the same value, and zeros give another
        one.
        """
        # Zeros are valid places for a kernel that reads places there.
        first = POISON_BYTES[0]
        other = 0
        if output.on_device.content is not None or self._workload.reads_poison:
            return False
        found = []
        for poison in (first, other):
            for one in self._outputs:
                self._device.prepare(one.on_device, poison)
            proof.run()
            found.append(output.bits(self._device, wrong.place))
        is_left = output.is_poison(found[0], first) and output.is_poison(found[1], other)
        return wrong.bits == found[0] != found[1] and not is_left

    def _contents(self) -> dict[str, Array]:
        """Return the present content of all buffers of inputs and outputs, by name."""
        inputs = self._make()
        forms = {**inputs, **self._workload.outputs(inputs, self._variant)}
        return {name: self._content(name, form) for name, form in forms.items()}

    def _content(self, name: str, form: Array) -> Array:
        """Return the content of a buffer as an array with the shape and type of `form`."""
        words = self._device.words(self._buffers[name], 0, ceil_div(form.nbytes, 4))
        held = words.view(np.uint8)[: form.nbytes].view(form.dtype)
        return held.reshape(form.shape)

    def _said(self, found: Sequence[Deviation]) -> tuple[int, list[str], float | None]:
        """Return the number of wrong words, a clause for each output, and the largest error."""
        several = len(self._outputs) > 1
        clauses = [
            output.fault(one, f" of '{output.name}'" if several else "")
            for output, one in zip(self._outputs, found, strict=True)
            if one.wrong
        ]
        shares = [one.worst for one in found if one.worst is not None]
        return sum(one.wrong for one in found), clauses, max(shares, default=None)

    def prove_together(
        self, bounds: Sequence[PreparedLaunch], compared: bool
    ) -> list[Judged] | None:
        """Run and compare several launches.

        If the poison may be a right value, each runs again with another poison.
        """
        if self._workload.has_check and compared:
            return None
        judged: list[Judged] = []
        guarded, inputs = [*self._watch.buffers.values()], [*self._watch.inputs.values()]
        proof_buffers = ProofBuffers(
            [output.on_device for output in self._outputs], guarded, inputs
        )
        results = list(self._device.prove_all(bounds, proof_buffers))
        if self._twice and compared:
            harmless = next((i for i, r in enumerate(results) if self._harmed(r)), len(results))
            if harmless < len(results):
                self.damage()
            second = replace(proof_buffers, poison=POISON_BYTES[1])
            again = self._device.prove_all(bounds[:harmless], second)
            results[:harmless] = map(_first_fault, results[:harmless], again)
        for proven in results:
            if isinstance(proven, TypedError):
                judged.append(proven)
                continue
            wrong, clauses, worst = self._said(proven.deviations) if compared else (0, [], None)
            words, more = self._watch.said(proven.strays, proven.sums)
            message = "; ".join([*clauses, *more]) or None
            judged.append((proven.seconds, Verdict(wrong + words, message, worst)))
            if more:
                self.damage()
                break
        return judged

    def _harmed(self, result: ProofResult | TypedError) -> bool:
        """Return whether a run wrote outside of the outputs."""
        return isinstance(result, ProofResult) and bool(
            self._watch.said(result.strays, result.sums)[1]
        )


def _first_fault(
    first: ProofResult | TypedError, second: ProofResult | TypedError
) -> ProofResult | TypedError:
    """Return the first of two results of a launch if it has a fault, otherwise the second."""
    if isinstance(first, TypedError) or any(one.wrong for one in first.deviations):
        return first
    return second


def check_output(workload: Workload, expected: Array, problem: Problem, dtype: str) -> None:
    """Raise WorkloadError if an expected output has another shape or type than the output.

    Parameters
    ----------
    workload
        The kernel.
    expected
        Expected output.
    problem
        Size of the problem.
    dtype
        Name of the element type.
    """
    shape, scalar = workload.output_form(problem, dtype)
    name = f"{workload.name}: reference has"
    if expected.shape != shape:
        raise WorkloadError(f"{name} shape {expected.shape}, the output {shape}")
    if expected.dtype != scalar:
        raise WorkloadError(f"{name} dtype {expected.dtype}, the output {scalar}")


class ReducedSpace(Space):
    """Buffers on the device for a kernel whose result is one number, see `Space`.

    Parameters
    ----------
    device
        The device.
    workload
        The kernel.
    problem
        Size of the problem.
    dtype
        Name of the element type.
    make
        Returns the inputs by name.
    known
        Quantities of the inputs that the check of the result requires, if they are known.
    """

    def __init__(
        self,
        device: Device,
        workload: ReducingWorkload,
        problem: Problem,
        dtype: str,
        make: Callable[[], Mapping[str, Array]],
        known: Any = None,
    ) -> None:
        """Upload the inputs. Errors are those of `open_space`."""
        self._device, self._workload, self._make = device, workload, make
        inputs = make()
        self._known = workload.known(inputs) if known is None else known
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
        """Return the cell's launch, or the call of the library, on these buffers."""
        call = self._workload.library(cell)
        if call is not None:
            return bind_library(self._device, call, self.buffers)
        return self._device.bind(program, self._workload.launch(cell), self.buffers)

    def forget(self) -> None:
        """Do nothing, because `poison` writes all memory that launches change."""

    def answer(self, left: Mapping[str, Array]) -> None:
        """Do nothing, because the launch before has left its result."""

    def value(self, proof: PreparedLaunch) -> float:
        """Return the number that a run of `proof` has written."""
        words = self._device.words(self._written[0], 0, ceil_div(self._result.nbytes, 4))
        return float(words.view(np.uint8)[: self._result.nbytes].view(self._result.dtype)[0])

    def verdict(self, cell: Cell, proof: PreparedLaunch) -> Verdict:
        """Check that the error of the result is within the bound for any order of summation."""
        message = self._workload.fault(self.value(proof), cell, self._known)
        faults = [] if message is None else [message]
        return self._watch.damage(self.words * len(faults), faults)


class FedSpace(Space):
    """Arrays on the host, in pinned and in ordinary memory, and shared streams, see `Space`.

    Parameters
    ----------
    device
        The device.
    workload
        The kernel.
    inputs
        Inputs by name.
    known
        Quantities of the inputs that the check of the result requires, if they are known.
    """

    def __init__(
        self,
        device: Device,
        workload: HostFedWorkload,
        inputs: Mapping[str, Array],
        known: Any = None,
    ) -> None:
        """Copy the inputs to pinned and to ordinary memory."""
        self._workload = workload
        self.known = workload.known(inputs) if known is None else known
        host_array = streams_of(device).host_array
        self.arrays = {
            pinned: {name: host_array(array, pinned) for name, array in inputs.items()}
            for pinned in (True, False)
        }
        self._pool = Pool(device, tuple(inputs))
        n = next(iter(inputs.values())).size
        pieces = cuts(n, COPY_STREAMS, 1, COPY_CHUNK)
        streams = 1 + max((p.stream for p in pieces), default=0)
        copied = Pipeline(streams, pieces, 0, n, n, True, StreamSetup.BEFORE)
        self.copy: PreparedLaunch = self._feed(None, copied, lambda _: 0.0, lambda *_: 0.0)

    def __enter__(self) -> FedSpace:
        """Return this object. Leaving the block closes its streams and frees their memory."""
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.__exit__()

    def part(self, n: int) -> FedSpace:
        """Return the space of the first `n` elements, which shares arrays and streams."""
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
        """Bind the cell to the host arrays of this problem.

        The result streams them to the device in pieces and runs the kernel on each piece.
        """
        workload = self._workload
        host_part = partial(workload.host_part, cell)
        total = partial(workload.total, cell)
        return self._feed(program, workload.pipeline(cell), host_part, total)

    def bind_proof(self, program: Program, cell: Cell) -> Feed:
        """Return the cell's pipeline, which fills its memory with ones before each run."""
        return replace(self.bind(program, cell), poisoned=True)

    def forget(self) -> None:
        """Do nothing, because the pipeline owns all memory that launches change."""

    def answer(self, left: Mapping[str, Array]) -> None:
        """Do nothing, because the pipeline owns all memory that launches change."""

    def damage(self) -> Verdict:
        """Return no fault, because the memory of the pipeline no longer exists."""
        return Verdict(0, None)

    def value(self, proof: PreparedLaunch) -> float:
        """Return the number that the last run of `proof` has computed."""
        assert isinstance(proof, Feed)
        return proof.value

    def verdict(self, cell: Cell, proof: PreparedLaunch) -> Verdict:
        """Check that the error of the result is within the bound for any order of summation."""
        message = self._workload.fault(self.value(proof), cell, self.known)
        return Verdict(0 if message is None else self.words, message)
