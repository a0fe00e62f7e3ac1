"""The arguments of a kernel that `tune` measures, and what must be in them after a launch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..planning.config_schema import ConfigError
from ..workloads.call import ArrayArgument, compiled
from ..workloads.contract import SharedMemory
from ..workloads.limits import EXACT, Limit
from .tune_source import WORD, is_const

Array = npt.NDArray[Any]


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


def named_arguments(
    arguments: Sequence[Any] | Mapping[str, Any], parameters: Sequence[str]
) -> dict[str, Array | SharedMemory | np.generic]:
    """The arguments on the host by name: the caller's, or those of the source's `parameters`."""
    if isinstance(arguments, Mapping):
        pairs = list(arguments.items())
    else:
        names = [re.findall(WORD, parameter)[-1] for parameter in parameters]
        if len(names) != len(arguments) or len(set(names)) != len(names):
            names = [f"argument_{i}" for i in range(len(arguments))]
        pairs = list(zip(names, arguments, strict=True))
    return {key: _on_host(key, value) for key, value in pairs}


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


def argument_of(
    key: str,
    value: Array | SharedMemory | np.generic,
    expected: Mapping[str, Array],
    reads: set[str],
    free: set[str],
    limit: Limit,
) -> ArrayArgument | SharedMemory | np.generic:
    """What the call says of an argument."""
    if not isinstance(value, np.ndarray):
        return value
    # Whole numbers have no rounding.
    own = limit if np.issubdtype(value.dtype, np.inexact) or value.dtype.kind == "V" else EXACT
    own = limit if limit.ulp is None and not limit.rtol else own
    content, own_limit = key not in expected or key in reads, own if key in expected else None
    return ArrayArgument(key, value.dtype, value.shape, content, own_limit, key not in free)


def expected_outputs(
    expect: Any, given: Mapping[str, Any], parameters: Sequence[str]
) -> dict[str, Array]:
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
            fits = [k for k in fits if not is_const(k, parameters)]
        if len(fits) != 1:
            raise ConfigError(f"expect: it does not tell which argument it is; {how}.")
        found = {fits[0]: array}
    elif not isinstance(found, Mapping):
        if len(found) != len(names):
            raise ConfigError(f"expect: {len(found)} entries for {len(names)} arguments; {how}.")
        found = {k: v for k, v in zip(names, found, strict=True) if v is not None}
    arrays = {}
    for key, value in found.items():
        own = given.get(place_of(key, names, "expect"))
        array = np.ascontiguousarray(_on_host(f"expect of {key}", np.asarray(value)))
        if not isinstance(own, np.ndarray) or array.size != own.size:
            raise ConfigError(
                f"expect: '{key}' has {array.size} elements, the argument "
                f"{own.size if isinstance(own, np.ndarray) else 'is no array'}."
            )
        # A reference of higher precision is rounded once.
        arrays[place_of(key, names, "expect")] = array.reshape(own.shape).astype(own.dtype)
    return arrays


def place_of(key: str | int, names: Sequence[str], what: str) -> str:
    """The name of an argument that is named, or meant by its place."""
    if isinstance(key, int) and -len(names) <= key < len(names):
        return names[key]
    if key not in names:
        raise ConfigError(f"{what}: there is no argument '{key}'; there are: {', '.join(names)}.")
    return str(key)
