"""Where a user's workload meets the library: what it raises or returns wrongly, in one sentence.

Every method that a workload defines is guarded (see `contract.Workload`): whoever calls one has to
expect `WorkloadError`, and no other error of a program. What careless code changes of the process,
and what then goes wrong elsewhere, is put back: the working directory after any method, and after a
module was loaded also the environment, NumPy's floating-point errors, warnings' filters,
``sys.stdout`` and ``sys.stderr``, and modules beside another kernel that have the same name.
"""

from __future__ import annotations

import functools
import inspect
import os
import reprlib
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..core.display import one_line
from ..core.errors import TypedError, WorkloadError

# A clause on what is wrong with a returned value; None where nothing is.
Check = Callable[[Any], str | None]


# Methods that make arrays. Without memory for one, a cell is over a limit, and not at fault.
_MAKES_ARRAYS = frozenset({"inputs", "reference", "expected", "known"})


def guard_methods(cls: type, root: type, checks: Mapping[str, Check]) -> None:
    """Guard the public methods of `cls`, a class derived from `root` whose bases are guarded.

    So are methods that it has from a class that is no workload, and what stands in the place of
    one that `root` asks for: a static method, a cached function.
    """
    asked = {
        name
        for base in cls.__mro__[1:]
        if issubclass(base, root)
        for name, value in vars(base).items()
        if inspect.isfunction(value)
    }
    for name in sorted(asked | vars(cls).keys()):
        owner = next(base for base in cls.__mro__ if name in vars(base))
        guarded_there = owner is not cls and issubclass(owner, root)
        if name.startswith("_") or guarded_there:
            continue
        value = vars(owner)[name]
        if name in asked or inspect.isfunction(value):
            setattr(cls, name, guarded(name, value, checks.get(name)))


def guarded(name: str, method: Callable[..., Any], check: Check | None) -> Callable[..., Any]:
    """The method `name` of a workload, whose errors of a program become WorkloadError.

    So do the end of the program (SystemExit), a returned value that does not pass `check`, and a
    changed working directory, which is put back. What passes is a TypedError, KeyboardInterrupt
    (the person's, as nothing tells it from one that the method raises), and MemoryError where
    arrays are made.
    """
    run = method if inspect.isfunction(method) else _as_function(method)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        folder = working_directory()
        try:
            returned = run(self, *args, **kwargs)
            fault = None if check is None else check(returned)
        except (TypedError, KeyboardInterrupt):
            raise
        except BaseException as err:
            if isinstance(err, MemoryError) and name in _MAKES_ARRAYS:
                raise
            raise WorkloadError(blamed(_file_of(type(self)), name, err)) from err
        finally:
            moved = put_back(folder)
        if moved is not None:
            label = file_label(_file_of(type(self)))
            raise WorkloadError(f"{label}: {name} {moved_clause(moved)}")
        if fault is not None:
            raise WorkloadError(f"{file_label(_file_of(type(self)))}: {name} returns {fault}")
        return returned

    return call


def _as_function(method: Any) -> Callable[..., Any]:
    """What a class holds in the place of a function: a static method, a cached one."""

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = method.__get__(self, type(self)) if hasattr(method, "__get__") else method
        return bound(*args, **kwargs)

    return run


def moved_clause(folder: str) -> str:
    """What user's code did that left the working directory at `folder`, and how to do without."""
    return (
        f"changes the working directory to '{one_line(folder)}'; name files by "
        "Path(__file__).parent instead"
    )


def blamed(file: Path, what: str, err: BaseException) -> str:
    """``kernels/x/workload.py:31: KeyError: 'src'``, by the innermost line beside `file`.

    Without such a line it says in `what` of the file the error came up.
    """
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
    """The file with the two folders above it, of which one is the kernel's."""
    return "/".join(path.parts[-3:])


def _file_of(cls: type) -> Path:
    return Path(getattr(sys.modules.get(cls.__module__), "__file__", None) or cls.__module__)


def instance_fault(kind: type) -> Check:
    """Checks that a value is of `kind`."""

    def check(value: Any) -> str | None:
        return None if isinstance(value, kind) else f"{_words(value)}, not a {kind.__name__}"

    return check


def clause_fault(value: Any) -> str | None:
    """What is wrong with a clause on a result that cannot be, None for one that can."""
    if value is None or isinstance(value, str):
        return None
    return f"{_words(value)}; it must return the reason, a text, or None where there is none"


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
    return f"{one_line(reprlib.repr(value), 40)} ({type(value).__name__})"


def working_directory() -> str | None:
    """None where somebody has removed it."""
    try:
        return os.getcwd()
    except OSError:
        return None


def put_back(folder: str | None) -> str | None:
    """Make `folder` the working directory again; the one that it was in the meantime, if any."""
    now = working_directory()
    if now == folder or folder is None:
        return None
    with suppress(OSError):  # the former one is gone as well
        os.chdir(folder)
    return now or "a folder that is gone"


# Folders of the kernels that this process has loaded, each with the separator at its end.
_loaded: set[str] = set()


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """A fence around loading the module in `folder`; its working directory is for the caller.

    Modules beside it stay loaded, so that its methods can go on importing them; they are forgotten
    when another kernel is loaded.
    """
    _forget_modules_of_others(str(folder) + os.sep)
    environment = dict(os.environ)
    streams = sys.stdout, sys.stderr
    try:
        with np.errstate(), warnings.catch_warnings():
            yield
    finally:
        sys.stdout, sys.stderr = streams
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        for name, value in environment.items():
            if os.environ.get(name) != value:
                os.environ[name] = value


def _forget_modules_of_others(folder: str) -> None:
    """Two kernels may each have a ``helper.py`` and put their folder on ``sys.path``."""
    others = tuple(_loaded - {folder})
    _loaded.add(folder)
    if not others:
        return
    sys.path[:] = [p for p in sys.path if not (p + os.sep).startswith(others)]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(others) and not name.startswith("gpushmoo_kernel_"):
            del sys.modules[name]
