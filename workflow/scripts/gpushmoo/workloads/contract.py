"""The contract of ``kernels/<name>/workload.py``, the description of a kernel.

A kernel folder holds ``kernel.cu``, ``kernel.cl`` (either may be missing) and ``workload.py``,
which defines ``WORKLOAD``, an instance of a subclass of `Workload`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..core.dtypes import DTYPES
from ..core.errors import WorkloadError
from ..core.numbers import whole
from ..core.space import Cell, Problem, Version, indexed
from . import user_code
from .limits import EXACT, Limit
from .views import Curve as Curve
from .views import HeatMap as HeatMap
from .views import Roofline as Roofline
from .views import View as View
from .views import WorkingSet as WorkingSet

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Touched:
    """One access by all threads of a block, in one turn of their loop if they have one.

    `elements` are column and row, shape (threads, 2), in the order of the threads' indices: texels
    of an `image`, or elements of an array in row order.
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


# Random elements that a thread draws at a time.
_DRAWN = 2**22


def uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Random numbers from 0 to 1, or any integers: the same however many cores draw them."""
    if dtype.kind not in "iu" and dtype not in (np.float32, np.float64):
        return uniform(rng, shape, np.dtype(np.float32)).astype(dtype)
    drawn = np.empty(math.prod(shape), dtype)
    parts = [drawn[begin : begin + _DRAWN] for begin in range(0, drawn.size, _DRAWN)]

    def draw(part: Array, own: np.random.Generator) -> None:
        if dtype.kind in "iu":
            ends = np.iinfo(dtype)
            part[:] = own.integers(ends.min, ends.max, part.size, dtype, endpoint=True)
        else:
            own.random(out=part, dtype=dtype)

    with ThreadPoolExecutor() as pool:
        list(pool.map(draw, parts, rng.spawn(len(parts))))
    return drawn.reshape(shape)


@dataclass(frozen=True)
class BufferRef:
    """Names one of the workload's buffers as a kernel argument."""

    name: str


@dataclass(frozen=True)
class NullRef:
    """A null pointer as a kernel argument."""


@dataclass(frozen=True)
class TextureRef:
    """Names one of the workload's images as a kernel argument for fetches.

    CUDA passes a texture object. OpenCL passes the image alone, and the kernel's sampler must have
    the same settings. `filter` is ``point`` or ``linear``; `address` outside of the image is
    ``clamp``, ``border`` (zeros), ``wrap`` or ``mirror``. The last two need `normalised`
    coordinates.
    """

    name: str
    filter: str = "point"
    address: str = "clamp"
    normalised: bool = False


@dataclass(frozen=True)
class SurfaceRef:
    """Names one of the workload's images as a kernel argument for writes."""

    name: str


@dataclass(frozen=True)
class SharedMemory:
    """Bytes of shared memory that a launch chooses.

    For OpenCL it is the argument of a parameter ``__local T *``, for CUDA the size of the array
    declared ``extern __shared__``, which is not an argument. A `tune` takes an expression, too.
    """

    n_bytes: Any


Argument = BufferRef | NullRef | TextureRef | SurfaceRef | SharedMemory | np.generic


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `grid` counts blocks, `block` counts threads, both (x, y, z).

    `tiles` is the number of equal pieces of work in the grid, for the model. Threads of a launch
    with `waves` stride over the grid: see `in_waves`. CUDA alone has clusters of `cluster` blocks
    (x, y, z), `cooperative` launches, and the `carveout`: the percentage of the first-level cache
    that had better be shared memory.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Argument, ...]
    tiles: int
    waves: int = 0
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    carveout: int | None = None

    def __post_init__(self) -> None:
        for what, size in (("grid", self.grid), ("block", self.block)):
            are_whole = isinstance(size, tuple) and all(
                isinstance(n, int | np.integer) for n in size
            )
            if not are_whole or len(size) != 3 or min(size) < 1:
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
            if isinstance(value, SharedMemory) and whole(value.n_bytes) is None:
                raise ValueError(f"argument {place} is {value!r}; its bytes must be a whole number")

    def in_waves(self, held: int) -> Launch:
        """With at most `waves` times as many blocks as a device holds, `held`, if it has waves.

        Of the grids in which no thread takes over 2 % more turns than in the best, the widest.
        """
        columns, rows, depth = self.grid
        most = self.waves * held
        if not 0 < most < columns * rows:
            return self
        heights = {ceil_div(rows, n) for n in range(1, rows + 1)}
        grids = [(min(columns, most // high), high) for high in heights if high <= most]
        turns = [ceil_div(columns, wide) * ceil_div(rows, high) for wide, high in grids]
        few = [grid for grid, n in zip(grids, turns, strict=True) if n <= 1.02 * min(turns)]
        return replace(self, grid=(*max(few), depth))

    @property
    def has_attributes(self) -> bool:
        """Whether the launch is another one than grid, block and arguments say."""
        return self.cooperative or self.cluster is not None or self.carveout is not None

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
        """Bytes of shared memory of the launch, besides the compiled one."""
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

    `kind` is ``load`` or ``store``; `space` is ``global``, ``texture``, ``surface`` or None (any);
    `width` is in bytes per thread, None for any. With `in_loop` it must be inside a loop.
    """

    kind: str
    space: str | None = None
    width: int | None = None
    at_least: int = 1
    in_loop: bool = False


class Workload(ABC):
    """A swept kernel: arguments, bytes moved, axes and the reference result.

    `axes` are the default axis specifications (see `space.expand_axis`); one that is 0 stands only
    in the cells of sweeps that name it. `title` and `pattern` are for the report. The output buffer
    must equal `reference` within `limit`, by default bit by bit. `images` names the inputs and
    outputs that are images, arrays of shape (height, width[, lanes]).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    pattern: ClassVar[str]
    dtypes: ClassVar[Sequence[str]]
    variants: ClassVar[Sequence[str]]
    # Swept unless the configuration names others; () is all of them.
    default_variants: ClassVar[Sequence[str]] = ()
    # Variants for comparison, which compete for no place.
    controls: ClassVar[Sequence[str]] = ()
    # Whole numbers, (height, width), or {"of_cache": 4}: see config/README.md.
    sizes: ClassVar[Sequence[Any]] = (1024,)
    cache_states: ClassVar[Sequence[str]] = ("warm",)
    # Cells have no axis that is 0, and not [0], unless it is asked for.
    axes: ClassVar[Mapping[str, Any]]
    # Axes that are preprocessor definitions of the same names (``TILE``: ``-DTILE=16``) and not
    # launch parameters: the kernel is built for every combination.
    compile_axes: ClassVar[Sequence[str]] = ()
    # Axes that may be 0.
    zero_axes: ClassVar[frozenset[str]] = frozenset()
    # The largest values of axes, on any device.
    most: ClassVar[Mapping[str, int]] = {}
    views: ClassVar[Sequence[View]] = ()
    # Name of the axis that counts persistent blocks.
    persistent_axis: ClassVar[str | None] = None
    # ``load``, ``store`` or ``work`` if this kernel's best cell is the device's most.
    peak: ClassVar[str | None] = None
    output: ClassVar[str] = "dst"
    # How far its elements may be from what is expected.
    limit: ClassVar[Limit] = EXACT
    # Whether launches are timed one by one, each on inputs that have their own content again, where
    # an output is an input; False if that does not change their time.
    renews: ClassVar[bool] = True
    # What `work` counts.
    work_unit: ClassVar[str] = "FLOP"
    # Inputs that launches may write, which nobody compares.
    unwatched: ClassVar[frozenset[str]] = frozenset()
    # Whether `check` is called.
    has_check: ClassVar[bool] = False
    # Whether the kernel reads the ones of the poison: then no other poison follows.
    reads_poison: ClassVar[bool] = False
    # Whether there is a kernel to build.
    device_code: ClassVar[bool] = True
    images: ClassVar[frozenset[str]] = frozenset()
    # Additional options of the compiler.
    options: ClassVar[Sequence[str]] = ()
    # What sentences call the method `valid`.
    valid_is: ClassVar[str] = "valid in its workload.py"
    # Checks of return values.
    _checks: ClassVar[Mapping[str, user_code.Check]] = {
        **dict.fromkeys(("bytes_read", "bytes_written", "bytes_copied"), user_code.bytes_fault),
        **dict.fromkeys(("reference", "expected"), user_code.expected_fault),
        **dict.fromkeys(("launch", "proof"), user_code.instance_fault(Launch)),
        "bytes_moved": user_code.moved_fault,
        "work": user_code.work_fault,
        **dict.fromkeys(("fault", "check"), user_code.clause_fault),
        "defines": user_code.instance_fault(dict),
        "valid": user_code.clause_fault,
        **dict.fromkeys(("inputs", "outputs", "constants"), user_code.arrays_fault),
        **dict.fromkeys(("name_expressions", "signature"), user_code.instance_fault(tuple)),
        "scratch": user_code.instance_fault(Mapping),
        "problem": user_code.instance_fault(Problem),
        "result_of": user_code.instance_fault(str),
    }

    def __init_subclass__(cls) -> None:
        """Guard the methods that a subclass defines: see `user_code`."""
        user_code.guard_methods(cls, Workload, cls._checks)

    def problem(self, size: int) -> Problem:
        """The problem for a size of one number: by default a square."""
        return Problem(size, size)

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Preprocessor definitions of a variant's builds; by default none.

        Every build gets ``element_t``, ``index_t`` and the `compile_axes` besides.
        """
        return {}

    def images_of(self, variant: str) -> frozenset[str]:
        """Which of `images` are images for `variant`; by default all."""
        return self.images

    def valid(self, cell: Cell) -> str | None:
        """Why `cell` is impossible, in a few words; None, the default, if it is possible.

        An impossible cell is neither built nor launched. It becomes a row with that reason, unless
        there are very many: see `combinations`.
        """
        return None

    def label_of(self, axis: str, value: int) -> Any:
        """The value of an axis as its user wrote it."""
        return value

    @property
    def is_restricted(self) -> bool:
        """Whether `valid` may refuse a cell."""
        return type(self).valid is not Workload.valid

    def quick_rule(self, axes: Sequence[str]) -> Callable[..., Any] | None:
        """A function of the values of `axes`, in their order, whose result is true for valid cells.

        None without one. If it fails or gives None, `valid` says why. It saves asking `valid` about
        each of very many cells.
        """
        return None

    def index_bits(self, problem: Problem) -> int:
        """Bits of the type ``index_t`` in what is compiled for `problem`: 32 or 64.

        By default 32 up to 2**31 elements; the other half of the numbers is for the overhang of a
        grid or of a loop's last step.
        """
        return 32 if problem.height * problem.width <= 2**31 else 64

    def index(self, problem: Problem, value: int) -> np.uint32 | np.uint64:
        """`value` as an argument for a parameter of type ``index_t``."""
        return np.uint32(value) if self.index_bits(problem) == 32 else np.uint64(value)

    def version(self, cell: Cell) -> Version:
        """The version of the kernel for `cell`."""
        values = tuple((axis, cell[axis]) for axis in self.compile_axes)
        return indexed(Version(cell.variant, values), self.index_bits(cell.problem))

    def macros(self, dtype: str, version: Version) -> dict[str, str]:
        """All preprocessor definitions of a build but the types. Raises WorkloadError.

        INDEX_BITS among them makes ``index_t`` 64 bits wide.
        """
        macros = self.defines(dtype, version.variant)
        for axis, value in version.values:
            if axis in macros:
                raise WorkloadError(f"{self.name}: defines gives '{axis}', which is an axis")
            macros = {**macros, axis: str(value)}
        return macros

    def name_expressions(self, version: Version) -> tuple[str, ...]:
        """Kernels that are compiled by their names: instances of templates, ``sum<float, BLOCK>``.

        Launches have these names as entries. Of a Triton file with several functions: the kernel.
        """
        return ()

    def signature(self, dtype: str, version: Version) -> tuple[str, ...]:
        """Of a Triton kernel: the types of a launch's arguments, see `dtypes.triton_type`.

        Triton chooses the block: it is (1, 1, 1) in a `launch`.
        """
        raise WorkloadError(f"{self.name}: a Triton kernel needs the method 'signature'")

    def constants(self, version: Version) -> Mapping[str, Array]:
        """Content of constant memory by the names of its symbols (CUDA)."""
        return {}

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
        """Names the result of `variant`; variants of one result are measured together."""
        return ""

    def expected(self, inputs: Mapping[str, Array], variant: str) -> Array:
        """The expected output of `variant`; by default `reference`."""
        return self.reference(inputs)

    def outputs(self, inputs: Mapping[str, Array], variant: str) -> dict[str, Array]:
        """The expected outputs by name; by default there is one, `output`.

        A launch finds the content of an output that is one of `inputs`, too, and poison in others.
        """
        return {self.output: self.expected(inputs, variant)}

    def limit_of(self, output: str) -> Limit:
        """How far elements of an output may be from what is expected; by default `limit`."""
        return self.limit

    def check(self, cell: Cell, arrays: Mapping[str, Array]) -> str | None:
        """What is wrong with what a launch left in inputs and outputs, as a clause."""
        return None

    @abstractmethod
    def launch(self, cell: Cell) -> Launch:
        """The timed launch of `cell`. May raise LaunchConfigError."""

    def proof(self, cell: Cell) -> Launch:
        """The launch that verifies `cell`: by default the timed one.

        A kernel that stores nothing while timed has other arguments here; entry, grid and block
        must be those of `launch`.
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

    def work(self, cell: Cell) -> float | None:
        """What the launch of `cell` computes, in `work_unit`; None, the default, if not told.

        The report shows its rate where a kernel declares no bytes.
        """
        return None

    def bytes_copied(self, problem: Problem, dtype: str) -> int:
        """Bytes moved by the memcpy baseline for comparison; 0 without one.

        The copy reads and writes as many bytes as the output has, so a kernel that reads more has
        none.
        """
        written = self.bytes_written(problem, dtype)
        return 2 * written if written >= self.bytes_read(problem, dtype) else 0

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64] | None:
        """Column and row of the first element of each thread of `block` (x, y), or None.

        Shape (threads, 2), in the order of the threads' indices. The model of the device counts the
        cache lines of a warp by it.
        """
        return None

    def touched(self, cell: Cell, block: tuple[int, int]) -> tuple[Touched, ...] | None:
        """The accesses of one turn of `block` (x, y), or None."""
        elements = self.texels(cell, block)
        if elements is None:
            return None
        read, written = self.bytes_moved(cell)
        images = self.images_of(cell.variant)
        found = [Touched("load", elements, bool(images - {self.output}))] if read else []
        found += [Touched("store", elements, self.output in images)] if written else []
        return tuple(found)

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """The accesses that the machine code of `entry` must hold; () if it is never timed.

        By default a load if a launch reads and a store if it writes.
        """
        problem = Problem(64, 64)
        found = [Access("load")] if self.bytes_read(problem, dtype) else []
        found += [Access("store")] if self.bytes_written(problem, dtype) else []
        return tuple(found)

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """Bytes of the largest single allocation of a run."""
        return max(self.bytes_read(problem, dtype), self.bytes_written(problem, dtype))

    def footprint(self, problem: Problem, dtype: str) -> int:
        """Device bytes of a verified run: inputs, output and expected output."""
        return self.bytes_read(problem, dtype) + 2 * self.bytes_written(problem, dtype)


class ReducingWorkload(Workload):
    """Base of kernels whose result is one number, exact up to rounding.

    For data on the device the output buffer is one element of the inputs' type. `fault` compares
    in the place of `reference`.
    """

    @abstractmethod
    def known(self, inputs: Mapping[str, Array]) -> Any:
        """Facts of the inputs for `fault`, computed once for each problem."""

    @abstractmethod
    def fault(self, value: float, cell: Cell, known: Any) -> str | None:
        """Why `value` is a wrong result of `cell`; None if rounding explains it."""

    def scratch(self, problem: Problem, dtype: str) -> Mapping[str, int]:
        """Bytes, by name, of buffers that several launches share."""
        return {}

    def library(self, cell: Cell) -> LibraryCall | None:
        """A call in the place of a launch; by default None."""
        return None

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Nothing: the result is compared by `fault`."""
        raise NotImplementedError

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """0: one number is negligible."""
        return 0


class CopyWorkload(Workload):
    """Base of the kernels whose output is a copy of their one input."""

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """``src``: uniform random elements, shape (height, width[, lanes])."""
        kind = DTYPES[dtype]
        return {"src": uniform(rng, kind.shape(problem.height, problem.width), kind.scalar)}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """The expected output is the input ``src`` itself."""
        return inputs["src"]

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """The bytes of all elements: each is read once."""
        return problem.height * problem.width * DTYPES[dtype].itemsize

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """The bytes of all elements: each is written once."""
        return self.bytes_read(problem, dtype)
