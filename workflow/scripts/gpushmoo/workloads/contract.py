"""Define the contract of ``kernels/<name>/workload.py``, the description of a kernel.

A kernel folder contains ``kernel.cu`` or ``kernel.cl``, or both, and ``workload.py``, which defines
``WORKLOAD``, an instance of a subclass of `Workload`.
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
from .tolerances import EXACT, Limit
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
    """Return column and row of each element of the tile at `place`, shape (elements, 2).

    `shape` is (width, height) of a tile, and `place` its (x, y) in units of tiles.
    """
    y, x = np.divmod(np.arange(shape[0] * shape[1]), shape[0])
    return np.stack([place[0] * shape[0] + x, place[1] * shape[1] + y], axis=1)


def ceil_div(a: int, b: int) -> int:
    """Return the number of blocks of `b` elements that cover `a` elements."""
    return -(-a // b)


# Random elements that a thread draws at a time.
_DRAWN = 2**22


def uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return random numbers from 0 to 1, or any integers.

    The result does not depend on the number of cores that draw.

    Parameters
    ----------
    rng
        Generator, of which one draw seeds all parts.
    shape, dtype
        Shape and type of the result.
    """
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
    """Kernel argument: the address of one of the workload's buffers, by name."""

    name: str


@dataclass(frozen=True)
class NullRef:
    """Kernel argument: a null pointer."""


@dataclass(frozen=True)
class TextureRef:
    """Kernel argument: one of the workload's images, by name, for fetches.

    CUDA passes a texture object. OpenCL passes the image alone, and the kernel's sampler must have
    the same settings. `filter` is ``point`` or ``linear``. `address` outside the image is
    ``clamp``, ``border`` (zeros), ``wrap`` or ``mirror``. The last two need `normalised`
    coordinates.
    """

    name: str
    filter: str = "point"
    address: str = "clamp"
    normalised: bool = False


@dataclass(frozen=True)
class SurfaceRef:
    """Kernel argument: one of the workload's images, by name, for writes."""

    name: str


@dataclass(frozen=True)
class SharedMemory:
    """Bytes of shared memory that a launch chooses.

    For OpenCL it is the argument of a parameter ``__local T *``. For CUDA it is the size of the
    array declared ``extern __shared__``, which is not an argument. In `tune` it may be an
    expression.
    """

    n_bytes: Any


Argument = BufferRef | NullRef | TextureRef | SurfaceRef | SharedMemory | np.generic


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `grid` counts blocks, `block` counts threads, both (x, y, z).

    `tiles` is the number of equal pieces of work in the grid, for the model. Threads of a launch
    with `waves` stride over the grid: see `in_waves`. On CUDA, a launch can also have clusters of
    `cluster` blocks (x, y, z), be `cooperative`, and prefer a `carveout`: the percentage of the
    first-level cache to use as shared memory.
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
        """Return the launch with at most `waves` times `held` blocks, if it has waves.

        `held` is the number of blocks that fit on the device at once. Among the grids whose busiest
        thread takes at most 2 % more turns than in the best grid, the widest is chosen.
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
        """Whether the launch has attributes besides grid, block and arguments."""
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
    """Function of the vendor's library for `dtype`; ``dot`` sums the products of the `inputs`."""

    name: str
    inputs: tuple[str, ...]
    output: str
    dtype: str


@dataclass(frozen=True)
class Access:
    """Access that the machine code of a timed kernel must contain for its time to be meaningful.

    `kind` is ``load`` or ``store``. `space` is ``global``, ``texture``, ``surface`` or None (any).
    `width` is in bytes per thread, None for any. With `in_loop` it must be inside a loop.
    """

    kind: str
    space: str | None = None
    width: int | None = None
    at_least: int = 1
    in_loop: bool = False


class Workload(ABC):
    """Description of a swept kernel: arguments, bytes moved, axes and the reference result.

    `axes` are the default axis specifications (see `space.expand_axis`). An axis whose value is 0
    exists only in cells of sweeps that name it. `title` and `pattern` are for the report. The
    output buffer must equal `reference` within `limit`, by default bit by bit. `images` names the
    inputs and outputs that are images, arrays of shape (height, width[, lanes]).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    pattern: ClassVar[str]
    dtypes: ClassVar[Sequence[str]]
    variants: ClassVar[Sequence[str]]
    # Swept unless the configuration names others; () means all of them.
    default_variants: ClassVar[Sequence[str]] = ()
    # Variants for comparison, which never win.
    controls: ClassVar[Sequence[str]] = ()
    # Whole numbers, (height, width), or {"of_cache": 4}: see config/README.md.
    sizes: ClassVar[Sequence[Any]] = (1024,)
    cache_states: ClassVar[Sequence[str]] = ("warm",)
    # Cells do not have an axis whose value is 0 (not [0]), unless a sweep names it.
    axes: ClassVar[Mapping[str, Any]]
    # Axes that are preprocessor definitions of the same names (``TILE``: ``-DTILE=16``) and not
    # launch parameters. The kernel is built for every combination of their values.
    compile_axes: ClassVar[Sequence[str]] = ()
    # Axes that may be 0.
    zero_axes: ClassVar[frozenset[str]] = frozenset()
    # Largest values of axes, on any device.
    most: ClassVar[Mapping[str, int]] = {}
    views: ClassVar[Sequence[View]] = ()
    # Name of the axis that counts persistent blocks.
    persistent_axis: ClassVar[str | None] = None
    # ``load``, ``store`` or ``work`` if this kernel's best cell measures the device's peak of it.
    peak: ClassVar[str | None] = None
    output: ClassVar[str] = "dst"
    # Largest difference between an output element and its expected value.
    limit: ClassVar[Limit] = EXACT
    # Whether launches are timed one by one, each on restored inputs, if an output is also an input.
    # Set False if restoring them does not change the time.
    renews: ClassVar[bool] = True
    # Unit of `work`.
    work_unit: ClassVar[str] = "FLOP"
    # Inputs that launches may write, and that are not compared.
    unwatched: ClassVar[frozenset[str]] = frozenset()
    # Whether `check` is called.
    has_check: ClassVar[bool] = False
    # Whether the kernel computes the same from all-ones poison; then no second poison value is
    # used.
    reads_poison: ClassVar[bool] = False
    # Whether there is a kernel to build.
    device_code: ClassVar[bool] = True
    images: ClassVar[frozenset[str]] = frozenset()
    # Additional options of the compiler.
    options: ClassVar[Sequence[str]] = ()
    # Name of the method `valid` in sentences.
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
        """Return the problem for a size of one number; by default a square."""
        return Problem(size, size)

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Return the preprocessor definitions of a variant's builds; by default none.

        Every build also gets ``element_t``, ``index_t`` and the `compile_axes`.
        """
        return {}

    def images_of(self, variant: str) -> frozenset[str]:
        """Return which of `images` are images for `variant`; by default all."""
        return self.images

    def valid(self, cell: Cell) -> str | None:
        """Return why `cell` is impossible, in a few words; None, the default, if it is possible.

        An impossible cell is neither built nor launched. It becomes a row with that reason, unless
        there are very many: see `combinations`.
        """
        return None

    def label_of(self, axis: str, value: int) -> Any:
        """Return the value of an axis as its user wrote it."""
        return value

    @property
    def is_restricted(self) -> bool:
        """Whether `valid` may reject a cell."""
        return type(self).valid is not Workload.valid

    def quick_rule(self, axes: Sequence[str]) -> Callable[..., Any] | None:
        """Return a function of the values of `axes`, in their order, that is true for valid cells.

        The default is None. If the function raises an error or returns None, `valid` decides. It
        avoids calls of `valid` for each of very many cells.
        """
        return None

    def index_bits(self, problem: Problem) -> int:
        """Return the bits of the type ``index_t`` in code for `problem`: 32 or 64.

        By default 32 up to 2**31 elements. The other half of the range is for the part of a grid,
        or of a loop's last step, beyond the end.
        """
        return 32 if problem.height * problem.width <= 2**31 else 64

    def index(self, problem: Problem, value: int) -> np.uint32 | np.uint64:
        """Return `value` as an argument for a parameter of type ``index_t``."""
        return np.uint32(value) if self.index_bits(problem) == 32 else np.uint64(value)

    def version(self, cell: Cell) -> Version:
        """Return the version of the kernel for `cell`."""
        values = tuple((axis, cell[axis]) for axis in self.compile_axes)
        return indexed(Version(cell.variant, values), self.index_bits(cell.problem))

    def macros(self, dtype: str, version: Version) -> dict[str, str]:
        """Return all preprocessor definitions of a build, except types; may raise WorkloadError.

        Among them, INDEX_BITS makes ``index_t`` 64 bits wide.
        """
        macros = self.defines(dtype, version.variant)
        for axis, value in version.values:
            if axis in macros:
                raise WorkloadError(f"{self.name}: defines returns '{axis}', which is an axis")
            macros = {**macros, axis: str(value)}
        return macros

    def name_expressions(self, version: Version) -> tuple[str, ...]:
        """Return the names of template instances to compile, such as ``sum<float, BLOCK>``.

        Launches use these names as entries. For a Triton file with several functions, return the
        kernel.
        """
        return ()

    def signature(self, dtype: str, version: Version) -> tuple[str, ...]:
        """Return the types of a Triton kernel's arguments, see `dtypes.triton_type`.

        Triton chooses the block, so it is (1, 1, 1) in a `launch`.
        """
        raise WorkloadError(f"{self.name}: a Triton kernel needs the method 'signature'")

    def constants(self, version: Version) -> Mapping[str, Array]:
        """Return the content of constant memory by the names of its symbols (CUDA)."""
        return {}

    @abstractmethod
    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the input buffers by name; random, so that no memory path can compress them.

        Parameters
        ----------
        problem
            Height and width in elements.
        dtype
            Element type, a name of `core.dtypes`.
        rng
            Generator to draw from.
        """

    @abstractmethod
    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Return the expected output buffer, computed by NumPy from `inputs`."""

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and NumPy type of the output.

        By default as many elements as the problem has.
        """
        return DTYPES[dtype].shape(problem.height, problem.width), DTYPES[dtype].scalar

    def result_of(self, variant: str) -> str:
        """Return the name of the result of `variant`.

        Variants with one result are measured together.
        """
        return ""

    def expected(self, inputs: Mapping[str, Array], variant: str) -> Array:
        """Return the expected output of `variant`; by default `reference`."""
        return self.reference(inputs)

    def outputs(self, inputs: Mapping[str, Array], variant: str) -> dict[str, Array]:
        """Return the expected outputs by name; by default only `output`.

        Before a launch, an output that is one of `inputs` has its content, and other outputs are
        poisoned.
        """
        return {self.output: self.expected(inputs, variant)}

    def limit_of(self, output: str) -> Limit:
        """Return the largest allowed difference of an output's elements; by default `limit`."""
        return self.limit

    def check(self, cell: Cell, arrays: Mapping[str, Array]) -> str | None:
        """Return the fault of the inputs and outputs after a launch, as a clause, or None."""
        return None

    @abstractmethod
    def launch(self, cell: Cell) -> Launch:
        """Return the timed launch of `cell`; may raise LaunchConfigError."""

    def proof(self, cell: Cell) -> Launch:
        """Return the launch that verifies `cell`: by default the timed one.

        A kernel that stores nothing while timed has other arguments here. Entry, grid and block
        must be those of `launch`.
        """
        return self.launch(cell)

    @abstractmethod
    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Return the bytes that one launch must read."""

    @abstractmethod
    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Return the bytes that one launch must write."""

    def bytes_moved(self, cell: Cell) -> tuple[int, int]:
        """Return the bytes that the launch of `cell` must read, and those that it must write.

        The default is `bytes_read` and `bytes_written` of the problem. Override it if the bytes
        depend on the launch parameters.
        """
        return (
            self.bytes_read(cell.problem, cell.dtype),
            self.bytes_written(cell.problem, cell.dtype),
        )

    def work(self, cell: Cell) -> float | None:
        """Return the work of the launch of `cell`, in `work_unit`; by default None.

        The report shows its rate if a kernel declares no bytes.
        """
        return None

    def bytes_copied(self, problem: Problem, dtype: str) -> int:
        """Return the bytes moved by the memcpy baseline for comparison; 0 without one.

        The copy reads and writes the bytes of the output, so a kernel that reads more does not get
        one.
        """
        written = self.bytes_written(problem, dtype)
        return 2 * written if written >= self.bytes_read(problem, dtype) else 0

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64] | None:
        """Return the first element that each thread of a block accesses, as column and row.

        The model of the device counts the cache lines of a warp with it. Without an override the
        result is None, and the model makes no prediction for the kernel.

        Parameters
        ----------
        cell
            The cell.
        block
            Index of the block in the grid, in x and y.

        Returns
        -------
        array of shape (threads, 2) or None
            Column and row, in the order of the threads' indices.
        """
        return None

    def touched(self, cell: Cell, block: tuple[int, int]) -> tuple[Touched, ...] | None:
        """Return the accesses of one turn of `block` (x, y), or None."""
        elements = self.texels(cell, block)
        if elements is None:
            return None
        read, written = self.bytes_moved(cell)
        images = self.images_of(cell.variant)
        found = [Touched("load", elements, bool(images - {self.output}))] if read else []
        found += [Touched("store", elements, self.output in images)] if written else []
        return tuple(found)

    def filtered(self, cell: Cell) -> bool:
        """Return whether a fetch from an image takes the mean of neighboring texels."""
        return False

    def shared(self, cell: Cell) -> tuple[Ints, ...]:
        """Return the accesses to a block's shared memory in one turn.

        Each is the offsets of the elements that the threads access, shape (threads,), in the order
        of the threads' indices. The model of the device counts conflicts of banks from them.
        """
        return ()

    def outer_turns(self, cell: Cell) -> int:
        """Return how often a thread runs a loop around the loop with its accesses."""
        return 1

    def steps(self, cell: Cell) -> int:
        """Return how often a block runs a loop with a barrier that accesses only shared memory."""
        return 0

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return the accesses that the machine code of `entry` must contain.

        () if it is never timed.

        By default a load if a launch reads and a store if it writes.
        """
        problem = Problem(64, 64)
        found = [Access("load")] if self.bytes_read(problem, dtype) else []
        found += [Access("store")] if self.bytes_written(problem, dtype) else []
        return tuple(found)

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of the largest single allocation of a run."""
        return max(self.bytes_read(problem, dtype), self.bytes_written(problem, dtype))

    def footprint(self, problem: Problem, dtype: str) -> int:
        """Return the device bytes of a verified run: inputs, output and expected output."""
        return self.bytes_read(problem, dtype) + 2 * self.bytes_written(problem, dtype)


class ReducingWorkload(Workload):
    """Base of kernels that reduce their inputs to one number, such as a sum of products.

    The number may differ from the exact result by rounding. So gpushmoo does not compare it with
    an expected output from `reference`, but calls `fault`, which decides whether rounding explains
    the difference. If the inputs are on the device, the output buffer holds one element of the
    inputs' type. For inputs on the host, see `HostFedWorkload`.
    """

    @abstractmethod
    def known(self, inputs: Mapping[str, Array]) -> Any:
        """Return facts of the inputs for `fault`, computed once for each problem."""

    @abstractmethod
    def fault(self, value: float, cell: Cell, known: Any) -> str | None:
        """Return why `value` is a wrong result of `cell`; None if rounding explains it."""

    def scratch(self, problem: Problem, dtype: str) -> Mapping[str, int]:
        """Return the bytes, by name, of buffers that several launches share."""
        return {}

    def library(self, cell: Cell) -> LibraryCall | None:
        """Return a library call that replaces the launch; by default None."""
        return None

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Raise NotImplementedError, because `fault` compares the result."""
        raise NotImplementedError

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Return 0, because one number is negligible."""
        return 0


class CopyWorkload(Workload):
    """Base of kernels whose output is a copy of their only input."""

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Return ``src``: uniform random elements, shape (height, width[, lanes])."""
        kind = DTYPES[dtype]
        return {"src": uniform(rng, kind.shape(problem.height, problem.width), kind.scalar)}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Return the input ``src`` itself, the expected output."""
        return inputs["src"]

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of all elements, because each is read once."""
        return problem.height * problem.width * DTYPES[dtype].itemsize

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of all elements, because each is written once."""
        return self.bytes_read(problem, dtype)
