"""Describe a kernel by one call (`tune`): its arguments, its expected outputs, and its launch.

Numbers of a launch are expressions of the cell's values: a number, the name of an axis, a text such
as ``ceil(n / block_x)``, or a function of a dictionary of the values. The values are those of the
axes, the `size`, its product `n`, and `height`, `width` and `depth` if the size has them.
"""

from __future__ import annotations

import math
import numbers
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.dtypes import triton_type
from ..core.errors import LaunchConfigError, WorkloadError
from ..core.numbers import whole
from ..core.space import BLOCK_AXES, Cell, Problem, Version
from .contract import Access, Array, BufferRef, Launch, Roofline, SharedMemory, Workload
from .tolerances import Limit
from .unnamed import UnnamedFile, array_in_file, file_of, unnamed_file

CLUSTER_AXES = ("cluster_x", "cluster_y", "cluster_z")
# Axes that set a launch attribute of the same name.
LAUNCH_AXES = (*CLUSTER_AXES, "cooperative", "carveout")

# Arrays of this many bytes or more are passed in memory; smaller ones as files.
LARGE = 2**24

# Most blocks in one direction of a grid, on any backend.
MAX_BLOCKS = 2**31 - 1

Expression = int | float | str | Callable[[dict[str, Any]], Any]

_FUNCTIONS: dict[str, Any] = {
    "__builtins__": {},
    **{name: getattr(math, name) for name in ("ceil", "floor", "log2", "sqrt", "gcd")},
    **{f.__name__: f for f in (abs, all, any, int, len, max, min, pow, round, sum)},
}


@cache
def compiled(text: str) -> CodeType:
    """Compile an expression to Python code; raise SyntaxError if it is not valid."""
    return compile(text.strip(), "<expression>", "eval")


def evaluated(what: str, expression: Expression | None, values: Mapping[str, Any]) -> Any:
    """Return the value of an expression; `what` is the argument's name for the error.

    Raises WorkloadError if the evaluation fails.
    """
    try:
        if callable(expression):
            return expression(dict(values))
        if isinstance(expression, str):
            # This is the caller's own text, evaluated in the caller's process or its child.
            return eval(compiled(expression), {**_FUNCTIONS, **values})  # noqa: S307
    except Exception as err:
        raise WorkloadError(f"{what}: {type(err).__name__}: {err}") from err
    return expression


def whole_of(what: str, value: Any, least: int = 0) -> int:
    """Return `value` as a whole number, at least `least`; raise WorkloadError naming `what`."""
    number = whole(value)
    if number is None:
        is_finite = isinstance(value, float) and math.isfinite(value)
        hint = "; round it: ceil(...), or // for /" if is_finite else ""
        raise WorkloadError(f"{what}: {value!r} is not a whole number{hint}")
    if not least <= number < 2**63:
        raise WorkloadError(f"{what}: {number:.6g} must be at least {least} and less than 2^63")
    return number


def _rounded(value: Any) -> Any:
    """Return the nearest whole number of a finite float."""
    return round(value) if isinstance(value, float) and math.isfinite(value) else value


def size_values(size: Sequence[int]) -> dict[str, Any]:
    """Return the names of the problem's size that expressions may use, with their values."""
    sides = dict(zip(("width", "height", "depth"), reversed(size), strict=False))
    return {"size": size[0] if len(size) == 1 else size, "n": math.prod(size), **sides}


@dataclass(frozen=True)
class ArrayArgument:
    """Array among a kernel's arguments: its initial content, and its expected content.

    `content` is True if a launch reads the initial content, `watched` if it must not write the
    array. If the limit is `bounded` for each element, `atol` is the largest of these bounds. Arrays
    are stored in files, large ones in memory.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    content: bool
    limit: Limit | None = None
    watched: bool = True
    bounded: bool = False

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Call:
    """Description of a kernel by its caller; `labels` are axis values that are swept by index.

    The kernel is compiled for the axes `defined`. They become macros, except the `instanced` ones,
    which are part of the name of a template's instance. `shared_at` is the position of the
    parameter that takes the `shared` bytes.
    """

    entry: str
    arguments: tuple[ArrayArgument | SharedMemory | np.generic, ...]
    size: tuple[int, ...]
    labels: Mapping[str, tuple[Any, ...]]
    defined: tuple[str, ...]
    block: Sequence[Expression] | Expression | None = None
    grid: Sequence[Expression] | Expression | None = None
    valid: Sequence[Expression] = ()
    shared: Expression = 0
    work: Expression | None = None
    bytes_moved: Expression | None = None
    renews: bool = True
    options: tuple[str, ...] = ()
    check: Callable[..., Any] | None = None
    constants: Mapping[str, Array] = field(default_factory=dict)
    instanced: tuple[str, ...] = ()
    shared_at: int | None = None

    @property
    def expressions(self) -> list[tuple[str, Expression]]:
        """Each expression with the name of its argument."""
        told = {
            n: getattr(self, n) for n in ("block", "grid", "valid", "shared", "work", "bytes_moved")
        }
        parts = {n: t if isinstance(t, list | tuple) else [t] for n, t in told.items()}
        found = [(name, one) for name, several in parts.items() for one in several]
        local = [a.n_bytes for a in self.arguments if isinstance(a, SharedMemory)]
        return [*found, *(("SharedMemory", one) for one in local)]

    def values(self, axes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the names that expressions may use, with their values."""
        return {**size_values(self.size), **axes}

    def instance(self, values: Mapping[str, Any]) -> str:
        """Return the kernel's name, with the values of axes that instantiate a template."""
        if not self.instanced:
            return self.entry
        head, bracket, rest = self.entry.partition("<")
        words = re.split(r"(\w+)", rest)
        return head + bracket + "".join(str(values[w]) if w in self.instanced else w for w in words)

    def _constant_fault(self) -> str | None:
        """Return why a number that is the same for all cells is wrong, or None."""
        for what in ("block", "grid"):
            sides = getattr(self, what)
            if isinstance(sides, list | tuple) and not 1 <= len(sides) <= 3:
                return f"{what}: it has {len(sides)} sides; it must have one to three."
        given: list[tuple[str, Any]] = [*self.expressions]
        for what, one in given:
            is_number = isinstance(one, numbers.Real | np.bool_)
            is_left_out = one is None and getattr(self, what, one) is None
            if not (is_left_out or is_number or isinstance(one, str) or callable(one)):
                kinds = "a number, an expression or a function"
                return f"{what}: it is {one!r:.60}; it must be {kinds}."
            if what == "work" and is_number and not 0 < one < math.inf:
                return f"work: it is {one}; it must be more than 0."
            if is_number and what not in ("valid", "work"):
                try:
                    number = _rounded(one) if what == "bytes_moved" else one
                    whole_of(what, number, int(what in ("block", "grid")))
                except WorkloadError as err:
                    return f"{err}."
        return None

    def fault(self, axes: Mapping[str, Any]) -> str | None:
        """Return why an expression cannot be evaluated, for example for an unknown name, or None.

        `axes` has one value for each axis.
        """
        known = self.values(axes)
        if fault := self._constant_fault():
            return fault
        for what, one in self.expressions:
            try:
                evaluated(what, one, known)
            except WorkloadError as err:
                why = err.__cause__
                if isinstance(why, SyntaxError):
                    return f"{what}: '{one}' is not an expression ({why.msg})."
                # Another error may occur for these values only.
                if isinstance(why, NameError | KeyError):
                    name = str(getattr(why, "name", why.args[0]))
                    if name.isidentifier() and name not in known:
                        return f"{what}: there is no '{name}'; there are: {', '.join(known)}."
        return None


class CallWorkload(Workload):
    """Workload of a `Call`; its folder contains the arrays, as `save` writes them."""

    pattern = "as its caller says"
    valid_is = "`valid`"

    def __init__(self, call: Call) -> None:
        """Store the call; `called` makes a subclass with the attributes."""
        self.call = call

    @property
    def functions(self) -> list[Callable[..., Any]]:
        """The caller's functions, which are sent to the measuring process."""
        said = [self.call.check, *(one for _, one in self.call.expressions)]
        return [one for one in said if callable(one)]

    @staticmethod
    def save(folder: Path, kinds: Mapping[str, Mapping[str, Array]]) -> list[UnnamedFile]:
        """Write the "arrays" by name, the "expected" ones and "bounds" into the kernel's folder.

        Large ones are links to memory that exists as long as the returned files.
        """
        kept = []
        for kind, held in kinds.items():
            (folder / kind).mkdir(exist_ok=True)
            for name, array in held.items():
                path = folder / kind / f"{name}.npy"
                filled = file_of(array)
                file = filled
                if file is None and array.nbytes >= LARGE:
                    file = unnamed_file(array.nbytes)
                if file is not None:
                    path.symlink_to(file.path)
                    kept.append(file)
                if filled is not None:
                    continue
                # This process owns the file, and writes it through the link.
                with path.open("wb") as open_file:
                    np.save(open_file, array.view(_storage(array.dtype)))
        return kept

    def values(self, cell: Cell) -> dict[str, Any]:
        """Return the values that expressions of `cell` may use, by name."""
        return self.call.values({axis: self.label_of(axis, value) for axis, value in cell.params})

    def label_of(self, axis: str, value: int) -> Any:
        """Return the caller's value of an axis, whose value in the cell may be an index."""
        return self.call.labels[axis][value] if axis in self.call.labels else value

    @property
    def is_restricted(self) -> bool:
        """Whether the call has conditions."""
        return bool(self.call.valid)

    def valid(self, cell: Cell) -> str | None:
        """Return the first condition that the cell does not meet, or None."""
        values = self.values(cell)
        for one in self.call.valid:
            what = f"valid: '{one}'" if isinstance(one, str) else "valid"
            found = evaluated(what, one, values)
            if found is None:
                raise WorkloadError(f"{what}: it gives None; it must give True or False")
            if not found:
                return one if isinstance(one, str) else "its caller's condition"
        return None

    def quick_rule(self, axes: Sequence[str]) -> Callable[..., Any] | None:
        """Return all conditions as one function if they are texts, otherwise None."""
        if not all(isinstance(one, str) for one in self.call.valid):
            return None
        # The line break ends a comment in the text.
        whole = " and ".join(f"({one}\n)" for one in self.call.valid)
        scope = {**_FUNCTIONS, **size_values(self.call.size)}
        try:
            # As in `evaluated`.
            found: Callable[..., Any] = eval(f"lambda {', '.join(axes)}: {whole}", scope)  # noqa: S307
        except SyntaxError:  # The text uses a keyword as a name, such as an axis 'if'.
            return None
        return found

    def macros(self, dtype: str, version: Version) -> dict[str, str]:
        """Return the axes that the source uses as macros, and their values."""
        named = {axis: str(self.label_of(axis, value)) for axis, value in version.values}
        return {axis: text for axis, text in named.items() if axis not in self.call.instanced}

    def name_expressions(self, version: Version) -> tuple[str, ...]:
        """Return the kernel's name with its template arguments."""
        named = {axis: self.label_of(axis, value) for axis, value in version.values}
        return (self.call.instance(named),)

    def signature(self, dtype: str, version: Version) -> tuple[str, ...]:
        """Return the types of the caller's arguments, as Triton's own launcher derives them."""
        given = [a for a in self.call.arguments if not isinstance(a, SharedMemory)]
        return tuple(triton_type(a.dtype if isinstance(a, ArrayArgument) else a) for a in given)

    def constants(self, version: Version) -> Mapping[str, Array]:
        """Return the constants that the caller gave."""
        return self.call.constants

    def index_bits(self, problem: Problem) -> int:
        """Return 32: the source declares its own types."""
        return 32

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the caller's arrays that launches read."""
        return {a.name: self._read("arrays", a) for a in self._arrays if a.content}

    def outputs(self, inputs: Mapping[str, Array], variant: str) -> dict[str, Array]:
        """Read the arrays that the caller expects."""
        return {a.name: self._read("expected", a) for a in self._arrays if a.limit is not None}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Return the first output that the caller expects."""
        return next(iter(self.outputs(inputs, "").values()))

    def limit_of(self, output: str) -> Limit:
        """Return the limit that the caller gave for an output."""
        argument = next(a for a in self._arrays if a.name == output)
        assert argument.limit is not None
        if not argument.bounded:
            return argument.limit
        return replace(argument.limit, atol=self._held("bounds", output))

    @property
    def _arrays(self) -> list[ArrayArgument]:
        return [a for a in self.call.arguments if isinstance(a, ArrayArgument)]

    def _read(self, kind: str, argument: ArrayArgument) -> Array:
        """Return an array of the folder in its own type and shape."""
        return self._held(kind, argument.name).view(argument.dtype).reshape(argument.shape)

    def _held(self, kind: str, name: str) -> Array:
        """Map an array of the folder into memory, which reads only touched parts."""
        folder = Path(str(sys.modules[type(self).__module__].__file__)).parent
        held: Array = np.load(folder / kind / f"{name}.npy", mmap_mode="r")
        return held

    def check(self, cell: Cell, arrays: Mapping[str, Array]) -> str | None:
        """Call the caller's check with all arguments, and return its complaint, or None."""
        check, given = self.call.check, self.call.arguments
        assert check is not None
        values = [arrays[a.name] if isinstance(a, ArrayArgument) else a for a in given]
        found = evaluated("check", lambda _: check(*values), {})
        if found is None:
            raise WorkloadError("check: it returns None; it must return True, False or a text")
        return found if isinstance(found, str) else None if found else "its caller's check fails"

    def launch(self, cell: Cell) -> Launch:
        """Evaluate grid and block of the call; by default the axes block_x to _z cover the size."""
        call = self.call
        values = self.values(cell)
        block = self._three("block", call.block, values)
        if call.block is None:
            block = [whole_of(axis, values.get(axis, 1), 1) for axis in BLOCK_AXES]
        grid = self._three("grid", call.grid, values)
        if call.grid is None:
            sides = [*reversed(call.size), 1, 1][:3]
            grid = [math.ceil(side / n) for side, n in zip(sides, block, strict=True)]
        self._refuse_blocks(grid)
        args = [self._argument(one, values) for one in call.arguments]
        shared = whole_of("shared", evaluated("shared", call.shared, values))
        if call.shared_at is not None:
            # A parameter needs memory even in a cell that uses none.
            args.insert(call.shared_at, SharedMemory(max(1, shared)))
        elif shared:
            args.append(SharedMemory(shared))
        (x, y, z), (bx, by, bz) = grid, block
        launch = Launch(call.instance(values), (x, y, z), (bx, by, bz), tuple(args), x * y * z)
        # Attributes of a launch that have the name of an axis.
        kinds: tuple[tuple[str, Any], ...] = (("cooperative", bool), ("carveout", int))
        named: dict[str, Any] = {axis: kind(values[axis]) for axis, kind in kinds if axis in values}
        if not values.keys().isdisjoint(CLUSTER_AXES):
            named["cluster"] = tuple(int(values.get(axis, 1)) for axis in CLUSTER_AXES)
        return replace(launch, **named)

    @staticmethod
    def _refuse_blocks(grid: Sequence[int]) -> None:
        """Raise LaunchConfigError if a grid has more blocks than any launch."""
        remedy = "use larger blocks, or have a thread compute several elements."
        for side, count in zip("xyz", grid, strict=True):
            if count > MAX_BLOCKS:
                raise LaunchConfigError(
                    f"grid {side} has {count} blocks, a launch at most {MAX_BLOCKS}: {remedy}"
                )
        if math.prod(grid) >= 2**63:
            raise LaunchConfigError(f"grid has {math.prod(grid):.3g} blocks: {remedy}")

    @staticmethod
    def _argument(argument: Any, values: dict[str, Any]) -> Any:
        if isinstance(argument, SharedMemory):
            n_bytes = evaluated("SharedMemory", argument.n_bytes, values)
            return SharedMemory(whole_of("SharedMemory", n_bytes))
        return BufferRef(argument.name) if isinstance(argument, ArrayArgument) else argument

    def _three(self, what: str, asked: Any, values: dict[str, Any]) -> list[int]:
        """Evaluate x, y and z, which may be one expression, up to three, or one function of all."""
        if asked is None:
            return [1, 1, 1]
        found = asked if isinstance(asked, list | tuple) else evaluated(what, asked, values)
        each = found if isinstance(found, list | tuple) else [found]
        sides = [whole_of(what, evaluated(what, one, values), 1) for one in each]
        if not 1 <= len(sides) <= 3:
            raise WorkloadError(f"{what}: it has {len(sides)} numbers; it must have one to three")
        return [*sides, 1, 1][:3]

    def work(self, cell: Cell) -> float | None:
        """Return the caller's amount of work for the cell, or None."""
        work = evaluated("work", self.call.work, self.values(cell))
        return None if work is None else float(work)

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Return 0, because `bytes_moved` returns all bytes."""
        return 0

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Return 0, because `bytes_moved` returns all bytes."""
        return 0

    def bytes_moved(self, cell: Cell) -> tuple[int, int]:
        """Return the bytes that the caller declares for a launch, all of them as bytes read.

        A call does not separate reads from writes. Without a declaration, both are 0.
        """
        moved = evaluated("bytes_moved", self.call.bytes_moved or 0, self.values(cell))
        return whole_of("bytes_moved", _rounded(moved)), 0

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return (): outputs are compared, and the code's accesses are unknown."""
        return ()

    def footprint(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of all arrays, of contents to restore, and of expected outputs."""
        outputs = [a for a in self._arrays if a.limit is not None]
        against = [a.nbytes + 8 * math.prod(a.shape) * a.bounded for a in outputs]
        kept = sum(a.nbytes for a in outputs if a.content)
        return sum(a.nbytes for a in self._arrays) + kept + sum(against)

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of the largest array."""
        return max((a.nbytes for a in self._arrays), default=0)


def called(
    name: str, call: Call, axes: Mapping[str, Any], dtype: str, work_unit: str
) -> CallWorkload:
    """Return the workload of a call; `axes` have whole numbers: values, or indices of labels.

    Parameters
    ----------
    name
        Name of the kernel.
    call
        Description of the kernel.
    axes
        Values of each axis.
    dtype
        Element type that the results name.
    work_unit
        Unit of the call's work, such as ``FLOP``.
    """
    own = {
        "name": name,
        "title": name,
        "dtypes": (dtype,),
        "variants": (call.entry,),
        "axes": dict(axes),
        # All dimensions before the last are combined into one.
        "sizes": ((math.prod(call.size[:-1]), call.size[-1]),),
        "compile_axes": call.defined,
        "zero_axes": frozenset(axes),
        "renews": call.renews,
        "unwatched": frozenset(
            a.name for a in call.arguments if isinstance(a, ArrayArgument) and not a.watched
        ),
        "has_check": call.check is not None,
        "options": call.options,
        "work_unit": work_unit,
        "views": () if call.work is None or call.bytes_moved is None else (Roofline(),),
    }
    made: CallWorkload = type("Called", (CallWorkload,), own)(call)
    return made


def array_to_pass(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """Return a large array of undefined content that `CallWorkload.save` need not copy.

    The result is None if the array is not large, or if there is no such memory.
    """
    is_plain = dtype.names is None and not dtype.hasobject
    if not is_plain or math.prod(shape) * dtype.itemsize < LARGE:
        return None
    try:
        made = array_in_file(shape, _storage(dtype))
    except OSError:  # In this case the copy reports the lack of memory.
        return None
    return None if made is None else made.view(dtype)


def _storage(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type of the same width that NumPy's files support."""
    # Structures are stored byte by byte.
    size = 8 * dtype.itemsize if dtype.names is None else 8
    return np.dtype(f"uint{size}") if dtype.kind == "V" else dtype
