"""Puts back what a user's workload.py changes of the process that it shares with the library.

That is what careless code does change and what then goes wrong elsewhere: the working directory by
any method, and while a module is loaded also the environment, NumPy's floating-point errors,
warnings' filters, ``sys.stdout`` and ``sys.stderr``, and modules beside another kernel that have
the same name.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np


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
