"""Guard methods of user code: an error or a wrong return value becomes a WorkloadError."""

from __future__ import annotations

import functools
import inspect
import math
import os
import reprlib
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..core.display import one_line
from ..core.errors import TypedError, WorkloadError

# Function that returns the fault of a return value as a clause, or None.
Check = Callable[[Any], str | None]


# Methods that make arrays. If memory is short in one of them, the cell is too large, not wrong.
_MAKES_ARRAYS = frozenset({"inputs", "reference", "expected", "outputs", "known"})


def guard_methods(cls: type, root: type, checks: Mapping[str, Check]) -> None:
    """Guard the public methods of `cls`, also inherited, static and cached; not those of `root`."""
    for name in {name for base in cls.__mro__ for name in vars(base) if name[0] != "_"}:
        owner = next(base for base in cls.__mro__ if name in vars(base))
        value = vars(owner)[name]
        is_method = callable(value) or isinstance(value, staticmethod | classmethod)
        is_guarded = owner is not cls and issubclass(owner, root)
        if is_method and not isinstance(value, type) and not is_guarded:
            setattr(cls, name, guarded(name, value, checks.get(name)))


def guarded(name: str, method: Callable[..., Any], check: Check | None) -> Callable[..., Any]:
    """Return the method `name` with errors, and values that fail `check`, as WorkloadError.

    SystemExit is such an error. TypedError and KeyboardInterrupt pass, and so does MemoryError of
    methods that make arrays.
    """
    run = method if inspect.isfunction(method) else _as_function(method)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            returned = run(self, *args, **kwargs)
            fault = None if check is None else check(returned)
        except (TypedError, KeyboardInterrupt):
            raise
        except BaseException as err:
            if isinstance(err, MemoryError) and name in _MAKES_ARRAYS:
                raise
            raise WorkloadError(blamed(_file_of(type(self)), name, err)) from err
        if fault is not None:
            raise WorkloadError(f"{file_label(_file_of(type(self)))}: {name} returns {fault}")
        return returned

    return call


def _as_function(method: Any) -> Callable[..., Any]:
    """Return a static or cached method as a function of the instance."""

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = method.__get__(self, type(self)) if hasattr(method, "__get__") else method
        return bound(*args, **kwargs)

    return run


def blamed(file: Path, what: str, err: BaseException) -> str:
    """Return ``kernels/x/workload.py:31: KeyError: 'src'``, by the innermost line beside `file`."""
    lines = [
        (Path(frame.f_code.co_filename), number)
        for frame, number in traceback.walk_tb(err.__traceback__)
        if Path(frame.f_code.co_filename).parent == file.parent
    ]
    if isinstance(err, SyntaxError) and err.filename and Path(err.filename).parent == file.parent:
        lines.append((Path(err.filename), err.lineno or 1))
    description = one_line(": ".join(filter(None, (type(err).__name__, _text_of(err)))))
    if isinstance(err, SystemExit):
        description += " (a workload must not end the program)"
    if not lines:
        return f"{file_label(file)}: in {what}: {description}"
    return f"{file_label(lines[-1][0])}:{lines[-1][1]}: {description}"


def _text_of(err: BaseException) -> str:
    try:
        return str(err.msg if isinstance(err, SyntaxError) else err)
    except Exception as own:
        return f"its text raises {type(own).__name__}"


def file_label(path: Path) -> str:
    """Return the file with the two folders above it, one of which is the kernel's."""
    return "/".join(path.parts[-3:])


def _file_of(cls: type) -> Path:
    return Path(getattr(sys.modules.get(cls.__module__), "__file__", None) or cls.__module__)


def instance_fault(kind: type) -> Check:
    """Return a check that a value is of `kind`."""

    def check(value: Any) -> str | None:
        return None if isinstance(value, kind) else f"{_words(value)}, not a {kind.__name__}"

    return check


def clause_fault(value: Any) -> str | None:
    """Return the fault of a returned reason, a text or None."""
    if value is None or isinstance(value, str):
        return None
    return f"{_words(value)}; it must return the reason as a text, or None"


def bytes_fault(value: Any) -> str | None:
    """Return the fault of a number of bytes, or None."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return None if whole and value >= 0 else f"{_words(value)}, not a whole number of bytes"


def moved_fault(value: Any) -> str | None:
    """Return the fault of the bytes that a launch reads and writes, or None."""
    if isinstance(value, tuple) and len(value) == 2:
        return next(filter(None, map(bytes_fault, value)), None)
    return f"{_words(value)}, not the bytes read and the bytes written"


def work_fault(value: Any) -> str | None:
    """Return why a kernel's amount of work, for example its FLOP, is not valid; None if it is."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if value is None or (is_number and 0 < value < math.inf):
        return None
    return f"{_words(value)}, neither a number above 0 nor None"


def array_fault(value: Any) -> str | None:
    """Return why a value is not a valid array of numbers; None if it is."""
    if not isinstance(value, np.ndarray):
        return f"{_words(value)}, not a NumPy array"
    if value.dtype.hasobject:
        return "an array of Python objects, not of numbers"
    return None


def arrays_fault(value: Any) -> str | None:
    """Return the fault of arrays by name, or None."""
    if not isinstance(value, Mapping):
        return f"{_words(value)}, not arrays by name"
    faults = ((name, array_fault(array)) for name, array in value.items())
    return next((f"{fault} for '{name}'" for name, fault in faults if fault), None)


def expected_fault(value: Any) -> str | None:
    """Return the fault of an expected output, which must not contain NaN, or None."""
    fault = array_fault(value)
    if fault is not None or value.dtype.kind != "f" or not value.size or not np.isnan(value.min()):
        return fault
    place = np.unravel_index(int(np.argmax(np.isnan(value))), value.shape)
    return f"NaN at {[int(i) for i in place]}, with which no output can be compared"


def _words(value: Any) -> str:
    return f"{one_line(reprlib.repr(value), 40)} ({type(value).__name__})"


# Folders of the kernels that this process has loaded, each with a separator at its end.
_loaded: set[str] = set()


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """Keep the working directory and the filters of warnings while a module loads.

    Modules beside it stay loaded until another kernel is loaded, so that its methods can import
    them later. Two kernels may each have a ``helper.py`` and put their folder on ``sys.path``.
    """
    own = str(folder) + os.sep
    others = tuple(_loaded - {own})
    _loaded.add(own)
    if others:
        sys.path[:] = [p for p in sys.path if not (p + os.sep).startswith(others)]
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if file.startswith(others) and not name.startswith("gpushmoo_kernel_"):
                del sys.modules[name]
    with chdir(os.curdir), np.errstate(), warnings.catch_warnings():
        yield
