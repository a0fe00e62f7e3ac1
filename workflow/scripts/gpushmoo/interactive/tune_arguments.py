"""Read the arguments of a kernel that `tune` measures, and the outputs that it expects."""

from __future__ import annotations

import math
import reprlib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.dtypes import is_of_ml_dtypes
from ..core.errors import ConfigError
from ..core.numbers import whole
from ..workloads.call import ArrayArgument, Expression, array_to_pass, compiled
from ..workloads.contract import SharedMemory
from ..workloads.tolerances import EXACT, Limit, each_share, parts
from .tune_source import KernelSource, Parameter, words_of

Array = npt.NDArray[Any]
Given = Array | SharedMemory | np.generic


def numpy_values(
    expressions: Mapping[str, str],
    size: int | Sequence[int],
    known: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Evaluate NumPy expressions such as ``random(n, float32)`` or ``int32(n)``.

    An expression may use the names of NumPy, ``n`` and ``size`` of the problem, ``random`` and
    ``integers(low, high, shape, type)`` with a fixed seed, and all values before it.

    Parameters
    ----------
    expressions
        Expressions by name, evaluated in this order.
    size
        Problem size, a number or a shape.
    known
        Additional values by name.

    Returns
    -------
    dict
        Values of the expressions, by name.

    Raises
    ------
    ConfigError
        If an expression fails.
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
            values[name] = eval(compiled(expression), {**names, **values})  # noqa: S307
            found[name] = values[name]
        except Exception as err:
            raise ConfigError(f"{name}: '{expression}' has no value ({err}).") from err
    return found


def named_arguments(
    arguments: Sequence[Any] | Mapping[str, Any], source: KernelSource, shared: Expression
) -> tuple[dict[str, Given], dict[str, Parameter]]:
    """Return the arguments on the host by name, and their parameters in the source as far as known.

    Names are those of a mapping, or those in the source. A parameter that gets `shared` bytes of
    local memory is not included.

    Parameters
    ----------
    arguments
        The caller's arguments.
    source
        The kernel's source.
    shared
        Bytes of dynamic shared memory.

    Raises
    ------
    ConfigError
        If an argument cannot be passed to a kernel, or if the number of arguments is wrong.
    """
    if isinstance(arguments, str | bytes) or not isinstance(arguments, Sequence | Mapping):
        raise ConfigError(
            f"arguments: they are {shown(arguments)}; give a list in the kernel's order, or a "
            "mapping by name."
        )
    is_named = isinstance(arguments, Mapping)
    pairs: dict[Any, Any] = dict(arguments if is_named else enumerate(arguments))
    taken = [key for key, value in pairs.items() if not isinstance(value, SharedMemory)]
    if source.local_places():
        added = shared_place(source, pairs.values(), shared)
        parameters = source.parameters(len(pairs) + (added is not None))
        if parameters and added is not None:
            parameters.pop(added)
        taken = list(pairs)
    else:
        # Then shared memory may not be an argument.
        parameters = source.parameters(*dict.fromkeys((len(taken), len(pairs))))
        taken = taken if len(parameters) == len(taken) else list(pairs)
    of: dict[Any, Parameter] = dict(zip(taken, parameters, strict=False))
    if is_named:
        by_name = {one.name: one for one in parameters}
        if by_name.keys() == pairs.keys():  # then names say more than the order
            pairs = {name: pairs[name] for name in by_name}
            of = {**by_name}
        names = {key: str(key) for key in pairs}
    else:
        names = {key: of[key].name if key in of else f"argument_{key}" for key in pairs}
    given = {names[key]: _on_host(names[key], value) for key, value in pairs.items()}
    return given, {names[key]: one for key, one in of.items()}


def shared_place(source: KernelSource, given: Iterable[Any], shared: Expression) -> int | None:
    """Return the index of the OpenCL parameter that gets dynamic local memory, or None without one.

    Parameters
    ----------
    source
        The kernel's source.
    given
        Arguments of the call.
    shared
        Bytes of dynamic local memory.
    """
    places = source.local_places()
    is_given = any(isinstance(value, SharedMemory) for value in given)
    return places[0] if len(places) == 1 and shared != 0 and not is_given else None


def shown(value: Any) -> str:
    """Return a value as text for a message, shortened if it is long."""
    short = reprlib.Repr()
    short.maxstring = 60
    short.maxother = 60
    return short.repr(value)


def whole_size(size: Any) -> tuple[int, ...]:
    """Return the problem size as up to three positive integers, or raise ConfigError."""
    several = isinstance(size, Sequence | np.ndarray) and not isinstance(size, str | bytes)
    sides = [None if isinstance(n, bool) else whole(n) for n in (size if several else [size])]
    if not 1 <= len(sides) <= 3 or any(n is None or n < 1 for n in sides):
        raise ConfigError(
            f"size: it is {shown(size)}; it must be a whole number of elements, at least 1, or up "
            "to three: (depth, height, width)."
        )
    found = tuple(n for n in sides if n is not None)
    if math.prod(found) >= 2**63:
        raise ConfigError(f"size: {math.prod(found):.3g} elements are too many.")
    return found


def options_of(options: Any, name: str = "options") -> tuple[str, ...]:
    """Return the options of a compiler as separate words.

    Parameters
    ----------
    options
        A text, in which blanks separate options as in a shell, or a list of options.
    name
        Name of the argument, for messages.

    Raises
    ------
    ConfigError
        If an option is not a text.
    """
    try:
        words = shlex.split(options) if isinstance(options, str) else options
    except ValueError as err:
        raise ConfigError(f"{name}: {shown(options)} cannot be separated ({err}).") from err
    if not isinstance(words, Sequence):
        raise ConfigError(f"{name}: it is {shown(options)}; it must be a text or a list of texts.")
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise ConfigError(f"{name}: it holds {shown(word)}; an option must be a text.")
    return tuple(words)


def constants_of(constants: Any) -> dict[str, Array]:
    """Return the contents of constant memory as arrays, by name of the symbol.

    Raises
    ------
    ConfigError
        If it is not a mapping of names to arrays.
    """
    if constants is not None and not isinstance(constants, Mapping):
        raise ConfigError(
            f"constants: they are {shown(constants)}; give a mapping of names to arrays."
        )
    return {str(key): _constant(key, value) for key, value in (constants or {}).items()}


def _constant(key: Any, value: Any) -> Array:
    if isinstance(value, np.generic):
        return np.asarray(value)
    found = _on_host(key, value, "constants")
    if isinstance(found, SharedMemory):
        raise ConfigError(f"constants: '{key}' is SharedMemory; it must be an array.")
    return np.asarray(found)


def names_of(what: str, asked: Any, names: Sequence[str]) -> set[str]:
    """Return the names of the arguments that `asked` selects.

    Parameters
    ----------
    what
        Name of the option, for messages.
    asked
        Names or indices, or a single one.
    names
        Names of all arguments.

    Raises
    ------
    ConfigError
        If there is no such argument.
    """
    several = [asked] if isinstance(asked, str | int | np.integer) else asked
    try:
        return {place_of(one, names, what) for one in several or ()}
    except TypeError as err:
        said = "it must be the name of an argument, or a list of names and places"
        raise ConfigError(f"{what}: it is {shown(asked)}; {said}.") from err


def place_of(key: Any, names: Sequence[str], what: str) -> str:
    """Return the name of the argument that `key` selects.

    Parameters
    ----------
    key
        A name, or an index, which may count from the end.
    names
        Names of all arguments.
    what
        Name of the option, for messages.

    Raises
    ------
    ConfigError
        If there is no such argument.
    """
    place = None if isinstance(key, bool) else whole(key)
    if place is not None and -len(names) <= place < len(names):
        return names[place]
    if key not in names:
        raise ConfigError(f"{what}: there is no argument '{key}'; there are: {', '.join(names)}.")
    return str(key)


def _fetched(value: Any) -> Any:
    """Return an array of a GPU on the host, if possible in memory that another process can map."""
    if callable(getattr(value, "get", None)) and not isinstance(value, Mapping):  # CuPy's
        return _got(value)
    if callable(getattr(value, "cpu", None)):  # PyTorch's
        return value.detach().cpu().numpy()
    return value


def _got(value: Any) -> Any:
    """Return a copy of an array that has a method `get`."""
    shape, dtype = (getattr(value, name, None) for name in ("shape", "dtype"))
    if not isinstance(shape, tuple) or not isinstance(dtype, np.dtype):
        return value.get()
    passed = array_to_pass(shape, dtype)
    if passed is None:
        return value.get()
    try:
        value.get(out=passed)
    except TypeError:  # PyOpenCL's `get` has no `out`
        return value.get()
    return passed


def _on_host(key: Any, value: Any, what: str = "arguments") -> Given:
    if isinstance(value, np.generic | SharedMemory):
        return value
    value = _fetched(value)
    if not isinstance(value, np.ndarray):
        example = "np.int32" if isinstance(value, int) else "np.float32"
        how = f"such as {example}({value!r})" if np.isscalar(value) else "such as np.int32(5)"
        raise ConfigError(
            f"{what}: '{key}' is {shown(value)}; it must be an array, SharedMemory, or a NumPy "
            f"scalar as wide as the kernel's parameter, {how}."
        )
    return _host_array(f"{what}: '{key}'", value)


def _host_array(what: str, value: Array) -> Array:
    """Return an array of numbers in row-major order and native byte order."""
    if value.dtype.hasobject or value.dtype.kind in "cSUmM":
        pairs = "; pass .view of its parts" if value.dtype.kind == "c" else ""
        raise ConfigError(f"{what} is an array of {value.dtype}; it must be of numbers{pairs}.")
    if value.dtype.kind == "f" and value.dtype.itemsize > 8:
        raise ConfigError(f"{what} is an array of {value.dtype}, a type that no kernel has.")
    if isinstance(value, np.ma.MaskedArray):
        raise ConfigError(f"{what} is a masked array, and kernels see no mask; pass .filled(…).")
    if value.size == 0:
        raise ConfigError(f"{what} is empty; it needs at least one element.")
    if value.flags.f_contiguous and not value.flags.c_contiguous:
        raise ConfigError(
            f"{what} is in Fortran's order, and the kernel finds elements in rows; pass "
            "np.ascontiguousarray of it, or its transpose .T, which has the same bytes."
        )
    native = value.astype(value.dtype.newbyteorder("="), copy=False)
    array: Array = np.ascontiguousarray(native)
    return array.reshape(1) if array.ndim == 0 else array


def refuse_other_types(
    given: Mapping[str, Given],
    parameters: Mapping[str, Parameter],
    source: KernelSource,
    read: Callable[[str], bool],
) -> None:
    """Raise ConfigError if the kernel would read an argument as another type than it has.

    Parameters
    ----------
    given
        Arguments by name.
    parameters
        Parameters in the source, by the same names.
    source
        The kernel's source.
    read
        Function that returns whether a launch reads the content of the array with this name.
    """
    for key, parameter in parameters.items():
        value = given[key]
        element = parameter.element
        is_number = isinstance(value, np.generic)
        what = f"arguments: '{key}', for '{parameter}', is"
        if isinstance(value, SharedMemory):
            if not parameter.is_local and element is not None:
                raise ConfigError(f"{what} local memory; arguments come in the kernel's order.")
            continue
        if (
            source.is_python
            or element is None
            or any(source.redefines(word) for word in _words_of_type(parameter))
        ):
            continue
        if is_number == parameter.is_pointer and not isinstance(value, np.uint64):
            kind = "a number" if is_number else "an array"
            raise ConfigError(f"{what} {kind}; arguments come in the kernel's order.")
        if is_number == parameter.is_pointer:
            continue
        fits = _reads_alike(value, element, is_number or read(key))
        if fits is None:
            continue
        same = f", or {key}.view(np.{element}) for the same bytes" * (not is_number)
        how = f"np.{element}({key})" if is_number else f"{key}.astype(np.{element}){same}"
        raise ConfigError(f"{what} of {value.dtype}{fits}; pass {how}.")


# Floats that a language may have no type of, and their bits.
_AS_BITS = {"float16": 16, "bfloat16": 16, "float8_e4m3fn": 8, "float8_e5m2": 8}


def _words_of_type(parameter: Parameter) -> set[str]:
    return {word for one in parameter.declarations for word in words_of(one)}


def _reads_alike(value: Array | np.generic, element: str, is_read: bool) -> str | None:
    """Return None if a kernel can read `value` as the type `element`, otherwise the problem."""
    own = value.dtype
    if own.name == element or (own.kind == "V" and not is_of_ml_dtypes(own)):
        return None
    if {own.name, element} & _AS_BITS.keys():
        # Where NumPy or the language has no such type, whole numbers keep its bits.
        other = element if own.name in _AS_BITS else own.name
        small = own.name if own.name in _AS_BITS else element
        return None if other in (f"int{_AS_BITS[small]}", f"uint{_AS_BITS[small]}") else ""
    kinds = np.dtype(element)
    if own.kind not in "iub" or kinds.kind not in "iub" or own.itemsize != kinds.itemsize:
        return ""
    if own.itemsize == 1 or not is_read:
        return None
    least, most = _ends(kinds)
    low, high = int(np.min(value)), int(np.max(value))
    return None if least <= low and high <= most else f" and holds {low} to {high}"


def argument_of(
    key: str,
    value: Given,
    expected: Mapping[str, Array],
    reads: set[str],
    free: set[str],
    limits: Mapping[str, Limit],
) -> ArrayArgument | SharedMemory | np.generic:
    """Return the part of a call for one argument: a description of an array, or another value.

    Parameters
    ----------
    key, value
        Name and value of the argument.
    expected
        Expected outputs by name.
    reads
        Names of outputs whose content the kernel reads.
    free
        Names of arrays that the kernel may write and that are not compared.
    limits
        Tolerances by name of the output.
    """
    if not isinstance(value, np.ndarray):
        return value
    content = key not in expected or key in reads
    own = limits.get(key)
    is_bounded = own is not None and bool(np.ndim(own.atol))
    if own is not None and is_bounded:
        # The bounds themselves are passed as arrays are.
        own = replace(own, atol=min(float(np.max(own.atol)), np.finfo(np.float64).max))
    watched = key not in free
    return ArrayArgument(key, value.dtype, value.shape, content, own, watched, is_bounded)


def bounds_of(limits: Mapping[str, Limit]) -> dict[str, Array]:
    """Return the tolerances that have a bound for each element, by name of the output."""
    return {k: np.asarray(one.atol) for k, one in limits.items() if np.ndim(one.atol)}


def limits_of(
    expected: Mapping[str, Array], ulp: int | None, rtol: float, atol: Any
) -> dict[str, Limit]:
    """Return the tolerance of each output.

    Outputs of integers must be equal unless only `atol` is given, because they have no rounding.

    Parameters
    ----------
    expected
        Expected outputs by name.
    ulp, rtol, atol
        Tolerances, see `Limit`. `atol` may be an array of an output's shape.

    Raises
    ------
    ConfigError
        If a tolerance is not possible, or if the shape of `atol` does not match.
    """
    try:
        limit = Limit(ulp, rtol, atol) if ulp is not None or rtol or np.any(atol) else EXACT
    except (ValueError, TypeError) as err:
        raise ConfigError(f"ulp, rtol, atol: {err}.") from err
    found = {}
    for key, value in expected.items():
        # Whole numbers have no rounding.
        is_float = np.issubdtype(value.dtype, np.inexact) or value.dtype.kind == "V"
        own = limit if is_float or (limit.ulp is None and not limit.rtol) else EXACT
        if np.ndim(own.atol):
            bound = np.asarray(own.atol)
            if bound.size != 1 and not _same_shape(bound, value):
                raise ConfigError(
                    f"atol: it has shape {bound.shape}, the output '{key}' {value.shape}; give a "
                    "number, or an array with a bound for each element."
                )
            full = bound.reshape(value.shape) if bound.size == value.size else bound
            own = replace(own, atol=full)
        found[key] = own
    return found


def expected_outputs(
    expect: Any, given: Mapping[str, Given], parameters: Mapping[str, Parameter]
) -> dict[str, Array]:
    """Return the expected outputs by name, in the types and shapes of their arguments.

    Parameters
    ----------
    expect
        Value of the option `expect`, see `Check`.
    given
        Arguments by name.
    parameters
        Parameters in the source, by the same names. A const argument is not an output.

    Raises
    ------
    ConfigError
        If an output does not match an argument.
    """
    names = list(given)
    found = expect
    how = "give one for each argument, None for inputs, or a mapping by name"
    if callable(expect):
        found = expect(*(np.copy(v) if isinstance(v, np.ndarray) else v for v in given.values()))
        if found is None:
            raise ConfigError("expect: the function returns None; it must return what is expected.")
    if found is None:
        return {}
    if not isinstance(found, list | tuple | Mapping):
        array = _reference("expect: it", found)
        arrays = {k: v for k, v in given.items() if isinstance(v, np.ndarray)}
        fits = [k for k, v in arrays.items() if v.size == array.size]
        if len(fits) > 1:  # an argument that is const is not an output
            fits = [k for k in fits if not (k in parameters and parameters[k].is_const)]
        if len(fits) != 1:
            shapes = ", ".join(f"{k} {v.shape}" for k, v in arrays.items())
            which = f"{len(fits)} arguments fit" if fits else "no argument fits"
            raise ConfigError(
                f"expect: {which} its shape {array.shape}; there are {shapes}; {how}."
            )
        found = {fits[0]: array}
    elif not isinstance(found, Mapping):
        if len(found) != len(names):
            raise ConfigError(f"expect: {len(found)} entries for {len(names)} arguments; {how}.")
        found = dict(zip(names, found, strict=True))
    arrays = {}
    for name, value in found.items():
        key = place_of(name, names, "expect")
        if value is not None:
            arrays[key] = _as_argument(key, _reference(f"expect: '{key}'", value), given[key])
    return arrays


def _reference(what: str, value: Any) -> Array:
    """Return an expected output as an array on the host, in row-major order."""
    value = _fetched(value)
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
    except ValueError as err:
        raise ConfigError(f"{what} is not an array ({err}).") from err
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    ordered = array if isinstance(array, np.ma.MaskedArray) else np.ascontiguousarray(array)
    return _host_array(what, ordered)


def _same_shape(one: Array, other: Array) -> bool:
    """Return whether elements correspond: shapes differ only in sides of 1, or one is flat."""
    if one.size != other.size:
        return False
    ours, theirs = ([side for side in array.shape if side != 1] for array in (one, other))
    return ours == theirs or min(len(ours), len(theirs)) < 2


def _as_argument(key: str, array: Array, own: Any) -> Array:
    """Return an expected output in the shape and type of its argument."""
    if not isinstance(own, np.ndarray):
        raise ConfigError(f"expect: '{key}' is not an array among the arguments.")
    if not _same_shape(array, own):
        raise ConfigError(
            f"expect: '{key}' has {array.size} elements in shape {array.shape}, the argument "
            f"{own.size} in shape {own.shape}; give one for each element."
        )
    return _cast(f"expect: '{key}'", array, own.dtype).reshape(own.shape)


def same_bytes(one: Array, other: Array) -> bool:
    """Return whether two C-contiguous arrays of the same number of bytes have the same content."""
    first, second = (array.reshape(-1).view(np.uint8) for array in (one, other))
    return all(np.array_equal(first[part], second[part]) for part in parts(first.size))


def _cast(what: str, array: Array, target: np.dtype[Any]) -> Array:
    """Return the array in another type, or raise ConfigError if an element does not fit."""
    if array.dtype == target:
        return array
    if "V" in (array.dtype.kind, target.kind) and not (_is_real(array.dtype) and _is_real(target)):
        raise ConfigError(f"{what} is of {array.dtype}, the argument of {target}.")
    flat = array.reshape(-1)
    cast = np.empty(array.size, target)

    def fill(some: slice) -> None:
        for part in parts(some.stop, some.start):
            cast[part], lost = _cast_part(flat[part], target)
            if lost.any():
                first = part.start + int(np.argmax(lost))
                at = [int(i) for i in np.unravel_index(first, array.shape)]
                raise ConfigError(
                    f"{what} holds {flat[first]!s} at {at}, which the argument's type {target} "
                    "cannot hold; give the argument another type, or expect what a kernel can "
                    "write there."
                )

    each_share(array.size, fill)
    return cast.reshape(array.shape)


def _cast_part(array: Array, target: np.dtype[Any]) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return a part in another type, and a mask of the elements that this type cannot represent."""
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(target)
        if target.kind in "iub" and array.dtype.kind in "iub":
            lost = _differ(cast, array)
        elif target.kind in "iub":
            least, most = (0, 1) if target.kind == "b" else _ends(target)
            value = array.astype(np.float64)
            lost = ~((value == np.trunc(value)) & (value >= least) & (value < most + 1.0))
        else:
            lost = _is_finite(array) & ~_is_finite(cast)
    return cast, lost


def _is_finite(array: Array) -> npt.NDArray[np.bool_]:
    own = array.astype(np.float32) if array.dtype.kind == "V" else array
    finite: npt.NDArray[np.bool_] = np.isfinite(own)
    return finite


def _ends(kind: np.dtype[Any]) -> tuple[int, int]:
    ends = np.iinfo(kind)
    return int(ends.min), int(ends.max)


def _is_real(kind: np.dtype[Any]) -> bool:
    return kind.kind in "iubf" or is_of_ml_dtypes(kind)


def _differ(cast: Array, array: Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the elements at which integers of two types are not equal."""
    differ: npt.NDArray[np.bool_] = cast.astype(array.dtype) != array
    if cast.dtype.kind != array.dtype.kind:
        # NumPy compares int64 with uint64 as floats, but no sign is lost.
        differ |= (cast < 0) != (array < 0)
    return differ
