"""Measures a kernel that one call describes: its source, arguments, size and axes."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..core.backends import AUTO, BACKENDS
from ..core.dtypes import TRITON_OPTIONS, dtype_name
from ..core.schema import Status, axis_fault
from ..core.space import BLOCK_AXES, TYPICAL, expand_axis
from ..planning.config_schema import ConfigError, refuse_unknown
from ..workloads.call import ArrayArgument, Call, Expression, called, compiled
from ..workloads.contract import SharedMemory
from ..workloads.limits import EXACT, Limit
from ..workloads.loader import copy_files, copy_folder, included_files, room_for
from .arguments import Request, argument_names
from .measure import Sweep, empty_folder, measured

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[Any]

_WORD = r"[A-Za-z_]\w*"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def tune(
    source: str | os.PathLike[str],
    name: str,
    arguments: Sequence[Any] | Mapping[str, Any],
    size: int | Sequence[int],
    axes: Mapping[str, Any],
    *,
    block: Any = None,
    grid: Any = None,
    valid: Any = (),
    expect: Any = None,
    check: Callable[..., Any] | None = None,
    unchecked: Sequence[str | int] | str | None = None,
    ulp: int | None = None,
    rtol: float = 0.0,
    atol: Any = 0.0,
    in_place: Sequence[str | int] = (),
    resets: bool = True,
    constants: Mapping[str, Any] | None = None,
    shared: Expression = 0,
    work: Expression | None = None,
    work_unit: str = "FLOP",
    moved: Expression | None = None,
    options: Sequence[str] = (),
    backend: str = AUTO,
    repeats: int | None = None,
    budget: float | None = None,
    progress: bool = True,
    **sweep: Any,
) -> Tuned:
    """Measure a kernel for every combination of its axes, verify each, and name the fastest.

    Parameters
    ----------
    source : str or path
        The kernel's text, or its file, whose name's end says what it is.
    name : str
        The kernel function; ``sum<float, BLOCK>`` is an instance of a template.
    arguments : sequence or mapping
        In the kernel's order arrays (NumPy, CuPy, anything with ``get`` or ``numpy``), NumPy
        scalars as wide as the parameters, and ``SharedMemory``. A mapping gives names, too.
    size : int or tuple
        The problem's, as the shape of an array: ``n``, ``(height, width)``, or three numbers.
    axes : mapping
        Values of each parameter: numbers or texts. Those that the source names are macros.
    block, grid : expression, tuple or function
        x, y and z, each a number, an axis, a text such as ``ceil(n / block_x)``; or a function of
        a dictionary of the values. By default the axes block_x, block_y, block_z, and what covers
        the size.
    valid : expression, function, or several
        Conditions that a combination must meet.
    expect : array, sequence, mapping or function
        What outputs must hold: of each argument, None for inputs, or by name; or a function of the
        arguments that returns this, or one array. Without it nothing is compared.
    check : function
        Of all arguments after a launch that found in arrays what `arguments` have: True if they are
        right, else False or a text on what is wrong.
    unchecked : sequence or "not const"
        Names or places of arrays that launches may write and nobody compares, or all that the
        source does not declare as const, which is the default without `expect`; else none.
    ulp, rtol, atol : int, float, float or array
        How far off an element may be; by default it must be equal. See `Limit`.
    in_place : sequence
        Names or places of outputs whose content the kernel reads; others are poisoned.
    resets : bool
        Whether such content comes back before each timed launch; False if that changes no time.
    constants : mapping
        Arrays in constant memory, by the symbol's name (CUDA).
    shared : expression
        Bytes of dynamic shared memory.
    work, work_unit, moved : expression, str, expression
        What a launch computes, in which unit, and the bytes that it must read and write.
    options : sequence of str
        Additional options of the compiler.
    backend, repeats, budget, progress, **sweep
        As of `sweep`.

    Returns
    -------
    Tuned
        A Sweep with `winner`, a dictionary; `best` and `cells` have the values of the axes.

    Raises
    ------
    ConfigError, DeviceError
        An argument is wrong, which is a ValueError; no device can be used.
    """
    own = inspect.signature(tune).parameters
    refuse_unknown("tune", sweep, [*own, *argument_names()])
    data, suffix, backend, file = _source(source, backend)
    # Axes are no macros of ready machine code.
    text = "" if suffix == ".cubin" else _COMMENT.sub(" ", data.decode(errors="replace"))
    kernel = re.sub(r"\W+", "_", name).strip("_")[:64]
    parameters = _parameters(text, name)
    given = _named(arguments, parameters)
    _refuse_other(text, name, parameters, given.values())
    limit = Limit(ulp, rtol, atol) if ulp is not None or rtol or np.any(atol) else EXACT
    arrays = {key: value for key, value in given.items() if isinstance(value, np.ndarray)}
    expected = _expected(expect, given, parameters)
    reads = {_place(key, list(given), "in_place") for key in in_place}
    if unchecked == "not const" or (unchecked is None and not expected):
        unchecked = [key for key in arrays if not _is_const(key, parameters)]
    free = {_place(key, list(given), "unchecked") for key in unchecked or ()}.difference(expected)
    for key in (*expected, *reads, *free):
        if key not in arrays:
            what = "expect, in_place, unchecked"
            raise ConfigError(f"{what}: '{key}' is no array among the arguments.")
        if key in reads and key in expected and arrays[key].tobytes() == expected[key].tobytes():
            does = "already holds what is expected; a kernel that does nothing would pass"
            raise ConfigError(f"expect: '{key}' {does}.")
    placed, labels = _axes(axes)
    named = " ".join([name, *(str(value) for values in labels.values() for value in values)])
    if suffix == ".triton.py":
        named = " ".join([named, *TRITON_OPTIONS])
    defined = _defined(text, named, axes)
    call = Call(
        name,
        tuple(_argument(k, value, expected, reads, free, limit) for k, value in given.items()),
        tuple(map(int, size if isinstance(size, Sequence) else [size])),
        labels,
        defined,
        block,
        grid,
        valid if isinstance(valid, list | tuple) else [valid],
        shared,
        work,
        moved,
        resets,
        tuple(options),
        check,
        {key: np.asarray(value) for key, value in (constants or {}).items()},
    )
    if fault := call.fault({a: labels.get(a, values)[0] for a, values in placed.items()}):
        raise ConfigError(fault)
    if block is None and suffix != ".triton.py" and not {*BLOCK_AXES} & {*axes}:
        raise ConfigError("block: it is not given, nor is an axis block_x, block_y or block_z.")
    main = next(iter(expected or arrays), None)
    dtype = "float" if main is None else dtype_name(arrays[main].dtype)
    if dtype is None:
        raise ConfigError(
            f"arguments: '{main}' is of type {arrays[str(main)].dtype}, as no kernel."
        )
    workload = called(kernel, call, placed, dtype, work_unit)
    contents = {key: arrays[key] for key in arrays if key not in expected or key in reads}

    def folder(values: Mapping[str, Any], work: Path, log_file: Path) -> Path:
        from .in_memory import write_folder

        parent, found = work / "kernels", dict[Path, Path]()
        if file is not None:
            found = {place: path for path, place in included_files(file)}
            parent = room_for(parent, file.parent, found)
        made = write_folder(workload, {suffix: data}, parent, workload.functions)
        workload.save(made, contents, expected)
        copy_files(found, made)
        return made

    asked = {"backend": backend, "repeats": repeats, "budget": budget, **sweep}
    if progress and not expected and check is None:
        print(f"{kernel}: no result is compared, since `expect` is not given", file=sys.stderr)
    return Tuned(*measured(folder, asked, progress), labels).warned()


class Tuned(Sweep):
    """A finished `tune`: a Sweep whose axes have the values that were asked for."""

    def __init__(
        self, request: Request, place: TemporaryDirectory[str], labels: Mapping[str, Sequence[Any]]
    ) -> None:
        """`labels` are the values of axes that were swept by their places."""
        super().__init__(request, place)
        self.best = _labelled(self.best, labels)
        self.choices = _labelled(self.choices, labels)
        self.cells = _labelled(self.cells, labels)

    @property
    def winner(self) -> dict[str, Any]:
        """The values of the combination to use, of `choices`. Raises ConfigError without one."""
        if self.choices.empty:
            raise ConfigError(f"winner: no combination worked ({self.fault}).")
        return {axis: _plain(self.choices[axis].iloc[0]) for axis in self._request.sweep.axes}

    def __repr__(self) -> str:
        """Also why no cell has a bandwidth."""
        text = super().__repr__()
        untold = Status.OK in self.statuses and self.cells["bandwidth_gbs"].isna().all()
        return f"{text[:-1]}; no GB/s, since `moved` is not given>" if untold else text

    def to_folder(self, folder: str | Path) -> Path:
        """Write the kernel's folder into `folder`, empty or new, for runs by configurations.

        Its ``workload.pickle`` needs this version of gpushmoo.
        """
        return copy_folder(self._request.sweep.folder.path, empty_folder(folder))


def numpy_values(
    expressions: Mapping[str, str],
    size: int | Sequence[int],
    known: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The values of NumPy expressions by name, such as ``random(n, float32)`` or ``int32(n)``.

    They know NumPy's names, ``n`` and ``size``, `known` values, and those before them. ``random``
    and ``integers(low, high, shape, type)`` draw with a fixed seed. Raises ConfigError.
    """
    rng = np.random.default_rng(0)
    shape = tuple(size) if isinstance(size, Sequence) else size
    values: dict[str, Any] = dict(known or {})
    names = {**vars(np), "size": shape, "n": int(np.prod(size)), "integers": rng.integers}
    names |= {"random": rng.random}
    found = {}
    for name, expression in expressions.items():
        try:
            # The caller's own text, in the caller's own process.
            found[name] = values[name] = eval(compiled(expression), {**names, **values})  # noqa: S307
        except Exception as err:
            raise ConfigError(f"{name}: '{expression}' has no value ({err}).") from err
    return found


def _source(source: str | os.PathLike[str], backend: str) -> tuple[bytes, str, str, Path | None]:
    """The kernel's file, its suffix, the backend for it, and where it was if it was one."""
    if isinstance(source, str) and ("\n" in source or "{" in source):
        found = [b for b in BACKENDS.values() if any(mark in source for mark in b.marks)]
        found = [BACKENDS[backend]] if backend != AUTO else found
        if not found:
            marks = ", ".join(mark for b in BACKENDS.values() for mark in b.marks)
            raise ConfigError(
                f"source: its text has no kernel: none of {marks}; or name a backend."
            )
        return source.encode(), found[0].source_suffix, found[0].name, None
    file = Path(source).expanduser().absolute()
    known = {suffix: b for b in BACKENDS.values() for suffix in b.suffixes}
    suffix = next((s for s in known if file.name.endswith(s)), None)
    if suffix is None:
        ends = ", ".join(known)
        raise ConfigError(f"source: '{source}' ends in none of {ends}, nor is it a kernel's text.")
    if backend not in (AUTO, known[suffix].name):
        raise ConfigError(f"source: '{source}' is no source for backend '{backend}'.")
    try:
        return file.read_bytes(), suffix, known[suffix].name, file
    except OSError as err:
        raise ConfigError(f"source: '{source}' cannot be read ({err}).") from err


def _named(
    arguments: Sequence[Any] | Mapping[str, Any], parameters: Sequence[str]
) -> dict[str, Array | SharedMemory | np.generic]:
    """The arguments on the host by name: the caller's, or those of the source's `parameters`."""
    if isinstance(arguments, Mapping):
        pairs = list(arguments.items())
    else:
        names = [re.findall(_WORD, parameter)[-1] for parameter in parameters]
        if len(names) != len(arguments) or len(set(names)) != len(names):
            names = [f"argument_{i}" for i in range(len(arguments))]
        pairs = list(zip(names, arguments, strict=True))
    return {key: _on_host(key, value) for key, value in pairs}


def _parameters(text: str, name: str) -> list[str]:
    """The declarations of a kernel's parameters, as far as its text tells them."""
    function = re.escape(re.split("[<(]", name)[0].strip())
    found = re.search(rf"\b{function}\s*\(([^{{;]*?)\)\s*\{{", text)
    parts = found[1].split(",") if found else []
    plain = [re.split(r"[=\[]", part)[0] for part in parts]
    return plain if all(re.search(_WORD, part) for part in plain) else []


def _refuse_other(text: str, name: str, parameters: Sequence[str], given: Collection[Any]) -> None:
    """Raise ConfigError where the text surely has no such kernel, or one of other parameters."""
    marks = "|".join(mark for b in BACKENDS.values() for mark in b.marks)
    heads = rf"\b(?:{marks}|def)\b[^;{{]*?({_WORD})\s*\([^(){{;]*\)\s*[{{:]"
    kernels = ", ".join(re.findall(heads, text))
    entry = re.split("[<(]", name)[0].split("::")[-1].strip()
    is_hidden = re.search(rf'\b{re.escape(entry)}\b|##|#\s*include\s*"', text)
    if kernels and not is_hidden:
        raise ConfigError(f"name: the source has no kernel '{name}'; it has: {kernels}.")
    # A macro may be several, or make one of several.
    is_plain = all(re.fullmatch(r"[\w\s*&]*\w[\s*&]+\w+\s*", one) for one in parameters)
    # Not of each backend is shared memory an argument.
    is_plain &= not any(isinstance(one, SharedMemory) for one in given)
    if parameters and is_plain and len(given) != len(parameters):
        words = ", ".join(re.findall(_WORD, one)[-1] for one in parameters)
        raise ConfigError(
            f"arguments: '{name}' takes {len(parameters)} ({words}), not {len(given)}."
        )


def _is_const(key: str, parameters: Sequence[str]) -> bool:
    return any(re.search(rf"\bconst\b.*\b{key}\b", one, re.DOTALL) for one in parameters)


def _on_host(key: str, value: Any) -> Array | SharedMemory | np.generic:
    if isinstance(value, np.generic | SharedMemory):
        return value
    if callable(getattr(value, "get", None)):  # CuPy's
        value = value.get()
    elif callable(getattr(value, "cpu", None)):  # PyTorch's
        value = value.cpu().numpy()
    if not isinstance(value, np.ndarray):
        example = "np.int32" if isinstance(value, int) else "np.float32"
        raise ConfigError(
            f"arguments: '{key}' is {value!r}; it must be an array, SharedMemory, or a NumPy "
            f"scalar as wide as the kernel's parameter, such as {example}({value!r})."
        )
    array: Array = np.ascontiguousarray(value)
    if array.dtype.hasobject or array.dtype.kind in "cSUmM":
        raise ConfigError(
            f"arguments: '{key}' is an array of {array.dtype}; it must be of numbers."
        )
    return array.reshape(1) if array.ndim == 0 else array


def _argument(
    key: str,
    value: Array | SharedMemory | np.generic,
    expected: Mapping[str, Array],
    reads: set[str],
    free: set[str],
    limit: Limit,
) -> ArrayArgument | SharedMemory | np.generic:
    if not isinstance(value, np.ndarray):
        return value
    # Whole numbers have no rounding.
    own = limit if np.issubdtype(value.dtype, np.inexact) or value.dtype.kind == "V" else EXACT
    own = limit if limit.ulp is None and not limit.rtol else own
    content, own_limit = key not in expected or key in reads, own if key in expected else None
    return ArrayArgument(key, value.dtype, value.shape, content, own_limit, key not in free)


def _expected(expect: Any, given: Mapping[str, Any], parameters: Sequence[str]) -> dict[str, Array]:
    """What is expected of each output, by name."""
    names, found = list(given), expect
    how = "give one for each argument, None for inputs, or a mapping by name"
    if callable(expect):
        found = expect(*(np.copy(v) if isinstance(v, np.ndarray) else v for v in given.values()))
    if found is None:
        return {}
    if not isinstance(found, list | tuple | Mapping):
        array = _on_host("expect", np.asarray(found) if np.isscalar(found) else found)
        size = array.size if isinstance(array, np.ndarray) else 0
        fits = [k for k, v in given.items() if isinstance(v, np.ndarray) and v.size == size]
        if len(fits) > 1:  # what is not written is no output
            fits = [k for k in fits if not _is_const(k, parameters)]
        if len(fits) != 1:
            raise ConfigError(f"expect: it does not tell which argument it is; {how}.")
        found = {fits[0]: array}
    elif not isinstance(found, Mapping):
        if len(found) != len(names):
            raise ConfigError(f"expect: {len(found)} entries for {len(names)} arguments; {how}.")
        found = {k: v for k, v in zip(names, found, strict=True) if v is not None}
    arrays = {}
    for key, value in found.items():
        own = given.get(_place(key, names, "expect"))
        array = np.ascontiguousarray(_on_host(f"expect of {key}", np.asarray(value)))
        if not isinstance(own, np.ndarray) or array.size != own.size:
            raise ConfigError(
                f"expect: '{key}' has {array.size} elements, the argument "
                f"{own.size if isinstance(own, np.ndarray) else 'is no array'}."
            )
        # A reference of higher precision is rounded once.
        arrays[_place(key, names, "expect")] = array.reshape(own.shape).astype(own.dtype)
    return arrays


def _place(key: str | int, names: Sequence[str], what: str) -> str:
    """The name of an argument that is named, or meant by its place."""
    if isinstance(key, int) and -len(names) <= key < len(names):
        return names[key]
    if key not in names:
        raise ConfigError(f"{what}: there is no argument '{key}'; there are: {', '.join(names)}.")
    return str(key)


def _axes(axes: Mapping[str, Any]) -> tuple[dict[str, list[int]], dict[str, tuple[Any, ...]]]:
    """Axes as whole numbers, and the values of those that are swept by their places."""
    fault = axis_fault(axes)
    if fault is not None:
        raise ConfigError(f"axes: {fault}.")
    placed, labels = {}, {}
    for axis, given in axes.items():
        one = isinstance(given, str) or not isinstance(given, Sequence | np.ndarray)
        parts = [given] if one else given
        every = (expand_axis(p, TYPICAL) if isinstance(p, Mapping) else [_plain(p)] for p in parts)
        values = list(dict.fromkeys(value for part in every for value in part))
        if not values:
            raise ConfigError(f"axes: '{axis}' has no values.")
        if all(isinstance(v, int) and v >= 0 for v in values):
            placed[axis] = values
        else:
            placed[axis], labels[axis] = list(range(len(values))), tuple(values)
    return placed, labels


def _plain(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and plain.is_integer() and not isinstance(value, float):
        return int(plain)
    return int(plain) if isinstance(plain, bool) else plain


def _defined(text: str, named: str, axes: Mapping[str, Any]) -> tuple[str, ...]:
    """The axes that the source has as a word, or a template's instance or an axis's value does."""
    words = {*re.findall(_WORD, f"{text} {named}")}
    return tuple(sorted(axis for axis in axes if axis in words))


def _labelled(frame: pd.DataFrame, labels: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    return frame.assign(
        **{x: frame[x].map(dict(enumerate(v))) for x, v in labels.items() if x in frame}
    )
