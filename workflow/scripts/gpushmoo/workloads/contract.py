"""What a kernel folder must say about its kernel: the contract of ``kernels/<name>/workload.py``.

A kernel folder holds ``kernel.cu``, ``kernel.cl`` (either may be missing) and ``workload.py``,
which defines ``WORKLOAD``, an instance of a subclass of `Workload`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..core.dtypes import DTYPES
from ..core.errors import WorkloadError
from ..core.space import Cell, Problem, Version, indexed
from . import user_code
from .views import Curve as Curve
from .views import HeatMap as HeatMap
from .views import View as View
from .views import WorkingSet as WorkingSet

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Touched:
    """One access that all threads of a block make, in one turn of their loop if they have one.

    `elements` are column and row, shape (threads, 2), in the order of the threads' indices; `image`
    says that they are texels of an image and not elements of an array that lies row by row.
    """

    kind: Literal["load", "store"]
    elements: Ints
    image: bool = False


def tile_elements(shape: tuple[int, int], place: tuple[int, int]) -> Ints:
    """Column and row of each element of the tile at `place` (x, y), tiles being (width, height)."""
    y, x = np.divmod(np.arange(shape[0] * shape[1]), shape[0])
    return np.stack([place[0] * shape[0] + x, place[1] * shape[1] + y], axis=1)


def ceil_div(a: int, b: int) -> int:
    """Blocks of `b` needed to cover `a`."""
    return -(-a // b)


@dataclass(frozen=True)
class BufferRef:
    """Names one of the workload's buffers as a kernel argument."""

    name: str


@dataclass(frozen=True)
class NullRef:
    """A null pointer as a kernel argument."""


@dataclass(frozen=True)
class TextureRef:
    """Names one of the workload's images as a kernel argument that texels are fetched from.

    CUDA passes a texture object. OpenCL passes the image alone: the kernel's sampler must say the
    same. `filter` is ``point`` or ``linear``; `address`, what lies outside of the image, is
    ``clamp``, ``border`` (zeros), ``wrap`` or ``mirror``, of which the last two want `normalised`
    coordinates.
    """

    name: str
    filter: str = "point"
    address: str = "clamp"
    normalised: bool = False


@dataclass(frozen=True)
class SurfaceRef:
    """Names one of the workload's images as a kernel argument that texels are written to."""

    name: str


@dataclass(frozen=True)
class SharedMemory:
    """Bytes of shared memory whose size a launch chooses.

    On OpenCL it is an argument, for a parameter ``__local T *``. CUDA has one such array, declared
    ``extern __shared__``; there it takes no place among the arguments.
    """

    n_bytes: int


Argument = BufferRef | NullRef | TextureRef | SurfaceRef | SharedMemory | np.generic


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `grid` counts blocks, `block` counts threads, both (x, y, z).

    `tiles` is the number of equal pieces of work that the grid shares out; the model reads it.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Argument, ...]
    tiles: int

    def __post_init__(self) -> None:
        for what, size in (("grid", self.grid), ("block", self.block)):
            whole = isinstance(size, tuple) and all(isinstance(n, int | np.integer) for n in size)
            if not whole or len(size) != 3 or min(size) < 1:
                raise ValueError(
                    f"the {what} is {size}; it must be three whole numbers (x, y, z), each at "
                    "least 1"
                )
        for place, value in enumerate(self.args):
            if not isinstance(value, Argument):
                raise ValueError(
                    f"argument {place} is {value!r}; it must be a BufferRef, TextureRef, "
                    "SurfaceRef, NullRef or SharedMemory, or a NumPy scalar as wide as the "
                    "kernel's parameter, e.g. np.uint64"
                )

    @property
    def threads(self) -> int:
        """Threads of one block, over all three dimensions."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        """Blocks of the whole grid, over all three dimensions."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that the launch itself asks for, beside what is compiled in."""
        return sum(arg.n_bytes for arg in self.args if isinstance(arg, SharedMemory))


@dataclass(frozen=True)
class LibraryCall:
    """A function of the vendor's library on `dtype`; ``dot`` sums the `inputs`' products up."""

    name: str
    inputs: tuple[str, ...]
    output: str
    dtype: str


@dataclass(frozen=True)
class Access:
    """An access that the machine code of a timed kernel must hold, or its time means nothing.

    `kind` is ``load`` or ``store``; `space` is ``global``, ``texture`` or ``surface`` (None: any of
    them); `width` is in bytes a thread (None: any). With `in_loop` it must stand inside a loop.
    """

    kind: str
    space: str | None = None
    width: int | None = None
    at_least: int = 1
    in_loop: bool = False


class Workload(ABC):
    """A swept kernel: arguments, bytes moved, axes and the reference result.

    `axes` are the default axis specifications (see `space.expand_axis`), `title` and `pattern`
    stand in the report. The output buffer is compared with `reference` bit by bit. `images` names
    the inputs, and the output, that are images and not buffers: arrays of shape
    (height, width[, lanes]).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    pattern: ClassVar[str]
    dtypes: ClassVar[Sequence[str]]
    variants: ClassVar[Sequence[str]]
    # Swept where the configuration names none; () is all of them.
    default_variants: ClassVar[Sequence[str]] = ()
    # Variants that are measured beside the others to compare with and that are not to win.
    controls: ClassVar[Sequence[str]] = ()
    sizes: ClassVar[Sequence[int]] = (1024,)
    cache_states: ClassVar[Sequence[str]] = ("warm",)
    axes: ClassVar[Mapping[str, Any]]
    # Those of the axes that are no launch parameters but preprocessor definitions of the same names
    # (an axis ``TILE`` compiles with ``-DTILE=16``): the kernel is built for every combination.
    compile_axes: ClassVar[Sequence[str]] = ()
    # Those of the axes that may be 0.
    zero_axes: ClassVar[frozenset[str]] = frozenset()
    # The largest value of an axis, where it has one whatever the device.
    most: ClassVar[Mapping[str, int]] = {}
    views: ClassVar[Sequence[View]] = ()
    # Name of the axis that counts persistent blocks.
    persistent_axis: ClassVar[str | None] = None
    # Whether the best cell of this kernel is what the device can ``load`` or ``store`` at most.
    ceiling: ClassVar[str | None] = None
    output: ClassVar[str] = "dst"
    # Whether anything runs on a device; else there is nothing to build.
    device_code: ClassVar[bool] = True
    images: ClassVar[frozenset[str]] = frozenset()
    # What methods return is checked by these.
    _checks: ClassVar[Mapping[str, user_code.Check]] = {
        **dict.fromkeys(("bytes_read", "bytes_written", "bytes_copied"), user_code.bytes_fault),
        **dict.fromkeys(("reference", "expected"), user_code.expected_fault),
        **dict.fromkeys(("launch", "proof"), user_code.instance_fault(Launch)),
        "bytes_moved": user_code.moved_fault,
        "fault": user_code.clause_fault,
        "defines": user_code.instance_fault(dict),
        "valid": user_code.clause_fault,
        "inputs": user_code.arrays_fault,
        "scratch": user_code.instance_fault(Mapping),
        "problem": user_code.instance_fault(Problem),
        "result_of": user_code.instance_fault(str),
    }

    def __init_subclass__(cls) -> None:
        """Guard the methods that a subclass defines: see `user_code`."""
        user_code.guard_methods(cls, Workload, cls._checks)

    def problem(self, size: int) -> Problem:
        """The problem that the configuration means by one number: by default a square."""
        return Problem(size, size)

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Preprocessor definitions of a variant's builds; by default none.

        Every build gets ``element_t``, ``index_t`` and the `compile_axes` besides.
        """
        return {}

    def valid(self, cell: Cell) -> str | None:
        """Why `cell` cannot be, in a few words; None, as by default, where it can.

        A cell that cannot be is neither built nor launched: it becomes a row with that reason.
        """
        return None

    def index_bits(self, problem: Problem) -> int:
        """Bits of the type ``index_t`` in what is compiled for `problem`: 32 or 64.

        By default 32 where half of the numbers of that width count all elements; the other half is
        for what a grid, or the last step of a loop, hangs over.
        """
        return 32 if problem.height * problem.width <= 2**31 else 64

    def index(self, problem: Problem, value: int) -> np.uint32 | np.uint64:
        """`value` as an argument for a parameter of type ``index_t``."""
        return np.uint32(value) if self.index_bits(problem) == 32 else np.uint64(value)

    def version(self, cell: Cell) -> Version:
        """What must be compiled for `cell`."""
        values = tuple((axis, cell[axis]) for axis in self.compile_axes)
        return indexed(Version(cell.variant, values), self.index_bits(cell.problem))

    def macros(self, dtype: str, version: Version) -> dict[str, str]:
        """All preprocessor definitions of a build but the types. Raises WorkloadError.

        Where ``index_t`` has 64 bits, INDEX_BITS among them says so to the backend.
        """
        macros = self.defines(dtype, version.variant)
        for axis, value in version.values:
            if axis in macros:
                raise WorkloadError(f"{self.name}: defines gives '{axis}', which is an axis")
            macros = {**macros, axis: str(value)}
        return macros

    @abstractmethod
    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Input buffers by name; random, so that no memory path can compress them."""

    @abstractmethod
    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """The expected output buffer, computed by NumPy."""

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and NumPy type of the output; by default as many elements as the problem has."""
        return DTYPES[dtype].shape(problem.height, problem.width), DTYPES[dtype].scalar

    def result_of(self, variant: str) -> str:
        """Names what `variant` computes; variants that compute the same are measured together."""
        return ""

    def expected(self, inputs: Mapping[str, Array], variant: str) -> Array:
        """The expected output of `variant`; by default `reference`, whatever the variant."""
        return self.reference(inputs)

    @abstractmethod
    def launch(self, cell: Cell) -> Launch:
        """The launch that is timed for `cell`. May raise LaunchRefusedError: there is none."""

    def proof(self, cell: Cell) -> Launch:
        """The launch by which `cell` is verified: by default the timed one.

        A kernel that stores nothing while it is timed gives other arguments here; entry, grid and
        block must be those of `launch`.
        """
        return self.launch(cell)

    @abstractmethod
    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Bytes that one launch must read."""

    @abstractmethod
    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Bytes that one launch must write."""

    def bytes_moved(self, cell: Cell) -> tuple[int, int]:
        """Bytes that the launch of `cell` must read and write; by default those of its problem."""
        return (
            self.bytes_read(cell.problem, cell.dtype),
            self.bytes_written(cell.problem, cell.dtype),
        )

    def bytes_copied(self, problem: Problem, dtype: str) -> int:
        """Bytes that the runtime's own copy beside the cells moves; 0 where it is no peer of them.

        It reads and writes as many bytes as the output has, so it says little of a kernel that
        reads more.
        """
        written = self.bytes_written(problem, dtype)
        return 2 * written if written >= self.bytes_read(problem, dtype) else 0

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64] | None:
        """Column and row of the element that each thread of `block` (x, y) takes first.

        Shape (threads, 2), in the order of the threads' indices; None where a kernel does not say.
        The model of the device counts the cache lines that a warp touches by it.
        """
        return None

    def touched(self, cell: Cell, block: tuple[int, int]) -> tuple[Touched, ...] | None:
        """The accesses of one turn of `block` (x, y); None where a kernel does not say."""
        elements = self.texels(cell, block)
        if elements is None:
            return None
        read, written = self.bytes_moved(cell)
        found = [Touched("load", elements, bool(self.images - {self.output}))] if read else []
        found += [Touched("store", elements, self.output in self.images)] if written else []
        return tuple(found)

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """What the machine code of `entry` must hold; () for an entry that is never timed.

        By default a load where a launch reads and a store where it writes.
        """
        problem = Problem(64, 64)
        found = [Access("load")] if self.bytes_read(problem, dtype) else []
        found += [Access("store")] if self.bytes_written(problem, dtype) else []
        return tuple(found)

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """Bytes of the largest single allocation of a run."""
        return max(self.bytes_read(problem, dtype), self.bytes_written(problem, dtype))

    def footprint(self, problem: Problem, dtype: str) -> int:
        """Device bytes of a verified run: inputs, output, and the expected output beside it."""
        return self.bytes_read(problem, dtype) + 2 * self.bytes_written(problem, dtype)


class ReducingWorkload(Workload):
    """Base of kernels whose result is one number, right up to what rounding explains.

    Where the data live on the device, the output buffer is one element of the inputs' type.
    `reference` is not asked for.
    """

    @abstractmethod
    def known(self, inputs: Mapping[str, Array]) -> Any:
        """What `fault` needs to know of the inputs: computed once for each problem."""

    @abstractmethod
    def fault(self, value: float, cell: Cell, known: Any) -> str | None:
        """Why `value` cannot be what `cell` computes; None where rounding explains it."""

    def scratch(self, problem: Problem, dtype: str) -> Mapping[str, int]:
        """Bytes, by name, of the buffers that launches on the device use between them."""
        return {}

    def library(self, cell: Cell) -> LibraryCall | None:
        """What is called instead of a launch; by default nothing."""
        return None

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Nothing: the result is compared by `fault`."""
        raise NotImplementedError

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """0: a launch writes one number, which counts for nothing beside what it reads."""
        return 0


class CopyWorkload(Workload):
    """Base of the kernels whose output is a copy of their one input."""

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """``src``: uniform random elements, shape (height, width[, lanes])."""
        kind = DTYPES[dtype]
        shape = kind.shape(problem.height, problem.width)
        if kind.normalised:
            return {"src": rng.integers(0, 256, shape, dtype=kind.scalar)}
        return {"src": rng.random(shape, dtype=kind.scalar)}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """The expected output is the input ``src`` itself."""
        return inputs["src"]

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """The bytes of all elements: each is read once."""
        return problem.height * problem.width * DTYPES[dtype].itemsize

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """The bytes of all elements: each is written once."""
        return self.bytes_read(problem, dtype)


class NothingMovedWorkload(Workload):
    """A kernel without data: a timed launch stores nothing, a proof one known word.

    That word counts as the bytes of a launch, since there are no others. `done` is what the proof
    stores, as the kernel's text has it.
    """

    done: ClassVar[int]

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """No buffer: there is nothing to read."""
        return {}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """The word that a proof stores once all of its threads did what is timed."""
        return np.array([self.done], np.uint32)

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """One word of 32 bits, whatever the problem and the element type."""
        return (1,), np.dtype(np.uint32)

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """0: nothing is read."""
        return 0

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """4: the word of a proof."""
        return 4

    def bytes_copied(self, problem: Problem, dtype: str) -> int:
        """0: no copy is a peer of a kernel that moves nothing."""
        return 0

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """The store of a proof."""
        return (Access("store", "global", 4),)
