"""Where a user's workload meets the library: what it raises or returns wrongly, in one sentence.

Every method that a workload defines is guarded (see `workload.Workload`): whoever calls one has to
expect `WorkloadError`, and no other error of a program.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

# A clause on what is wrong with a returned value; None where nothing is.
Check = Callable[[Any], str | None]


class TypedError(Exception):
    """An error whose type says how a cell ends."""


class WorkloadError(TypedError, ValueError):
    """A workload raised an error or returned what is of no use; one sentence with its file."""


def guarded(name: str, method: Callable[..., Any], check: Check | None) -> Callable[..., Any]:
    """The method `name` of a workload, whose errors of a program become WorkloadError.

    So does a returned value that does not pass `check`. A TypedError and a MemoryError pass.
    """

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        file = _file_of(type(self))
        try:
            returned = method(self, *args, **kwargs)
        except (TypedError, MemoryError):
            raise
        except Exception as err:
            raise WorkloadError(blamed(file, name, err)) from err
        fault = None if check is None else check(returned)
        if fault is not None:
            raise WorkloadError(f"{file_label(file)}: {name} returns {fault}")
        return returned

    return call


def blamed(file: Path, what: str, err: Exception) -> str:
    """``kernels/x/workload.py:31: KeyError: 'src'``, by the innermost line beside `file`.

    Without such a line it says in `what` of the file the error came up.
    """
    lines = [
        (Path(frame.f_code.co_filename), number)
        for frame, number in traceback.walk_tb(err.__traceback__)
        if Path(frame.f_code.co_filename).parent == file.parent
    ]
    said = ": ".join(filter(None, (type(err).__name__, " ".join(str(err).split()))))
    if not lines:
        return f"{file_label(file)}: in {what}: {said}"
    return f"{file_label(lines[-1][0])}:{lines[-1][1]}: {said}"


def file_label(path: Path) -> str:
    """The file with the two folders above it, of which one is the kernel's."""
    return "/".join(path.parts[-3:])


def _file_of(cls: type) -> Path:
    return Path(getattr(sys.modules.get(cls.__module__), "__file__", None) or cls.__module__)


def check_size(what: str, size: Any) -> None:
    """Raise ValueError when the grid or block `size` of a launch is not three positive numbers."""
    whole = isinstance(size, tuple) and all(isinstance(n, int | np.integer) for n in size)
    if not whole or len(size) != 3 or min(size) < 1:
        raise ValueError(f"the {what} is {size}; it must be (x, y, z), each at least 1")


def check_arguments(arguments: Any, kinds: Any) -> None:
    """Raise ValueError when one of the arguments of a launch is of none of the `kinds`."""
    for place, value in enumerate(arguments):
        if not isinstance(value, kinds):
            raise ValueError(
                f"argument {place} is {value!r}; it must be a BufferRef, TextureRef, SurfaceRef or "
                "NullRef, or a NumPy scalar as wide as the kernel's parameter, e.g. np.uint64"
            )


def instance_fault(kind: type) -> Check:
    """Checks that a value is of `kind`."""

    def check(value: Any) -> str | None:
        return None if isinstance(value, kind) else f"{_words(value)}, not a {kind.__name__}"

    return check


def bytes_fault(value: Any) -> str | None:
    """What is wrong with a number of bytes."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return None if whole and value >= 0 else f"{_words(value)}, not a whole number of bytes"


def moved_fault(value: Any) -> str | None:
    """What is wrong with the bytes that a launch reads and writes."""
    if isinstance(value, tuple) and len(value) == 2:
        return next(filter(None, map(bytes_fault, value)), None)
    return f"{_words(value)}, not the bytes read and the bytes written"


def array_fault(value: Any) -> str | None:
    """What is wrong with an array of numbers."""
    if not isinstance(value, np.ndarray):
        return f"{_words(value)}, not a NumPy array"
    if value.dtype.hasobject:
        return "an array of Python objects, not of numbers"
    return None


def arrays_fault(value: Any) -> str | None:
    """What is wrong with arrays by name."""
    if not isinstance(value, Mapping):
        return f"{_words(value)}, not arrays by name"
    faults = ((name, array_fault(array)) for name, array in value.items())
    return next((f"{fault} for '{name}'" for name, fault in faults if fault), None)


def expected_fault(value: Any) -> str | None:
    """What is wrong with an expected output: NaN equals nothing."""
    fault = array_fault(value)
    if fault is not None or value.dtype.kind != "f" or not value.size or not np.isnan(value.min()):
        return fault
    place = np.unravel_index(int(np.argmax(np.isnan(value))), value.shape)
    return f"NaN at {[int(i) for i in place]}, with which no output can be compared"


def _words(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 40 else text[:37] + '...'} ({type(value).__name__})"
