"""Puts back what a user's workload.py changes of the process that it shares with the library.

Fenced is what careless code does change and what then goes wrong elsewhere: the working directory,
NumPy's floating-point errors, warnings' filters, and while a module is loaded the environment,
``sys.stdout`` and ``sys.stderr``, and modules beside another kernel that have the same name.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np


class Fence:
    """A context manager around a call of user's code, cheap enough for every one (microseconds).

    Afterwards `moved` is the working directory to which the code had changed, None if it had not.
    """

    __slots__ = ("_errors", "_filters", "_folder", "moved")

    def __enter__(self) -> Fence:
        """Remember the process as it is."""
        self.moved: str | None = None
        self._folder = _working_directory()
        self._filters = warnings.filters[:]
        self._errors = np.errstate()
        self._errors.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        """Put it back."""
        self._errors.__exit__(*exc)
        if warnings.filters != self._filters:
            warnings.filters[:] = self._filters  # type: ignore[index]
        folder = _working_directory()
        if folder != self._folder and self._folder is not None:
            self.moved = folder or "a folder that is gone"
            with suppress(OSError):  # the former one is gone as well
                os.chdir(self._folder)


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # removed by somebody
        return None


# Folders of the kernels that this process has loaded, each with the separator at its end.
_loaded: set[str] = set()


@contextmanager
def loading(folder: Path) -> Iterator[Fence]:
    """A fence around loading the module in `folder`.

    Modules beside it stay loaded, so that its methods can go on importing them; they are forgotten
    when another kernel is loaded.
    """
    _forget_modules_of_others(str(folder) + os.sep)
    environment = dict(os.environ)
    streams = sys.stdout, sys.stderr
    try:
        with Fence() as fence:
            yield fence
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
