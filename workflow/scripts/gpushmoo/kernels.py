"""Finds and loads kernel folders. A kernel is one folder; nothing else names it."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .contract import blamed, file_label, moved_clause
from .dtypes import DTYPES
from .fence import loading
from .schema import axis_fault
from .workload import Workload


class KernelFolderError(ValueError):
    """A kernel folder is missing or does not keep the contract; one sentence."""


@dataclass(frozen=True)
class KernelFolder:
    """A kernel on disk with its loaded workload."""

    path: Path
    workload: Workload

    @property
    def name(self) -> str:
        """The folder's name, which is the kernel's."""
        return self.path.name

    def digest(self) -> str:
        """Hash over the folder's source files; part of every row's provenance."""
        h = hashlib.sha256()
        for path in sorted(self.path.iterdir()):
            if path.suffix in {".cu", ".cl", ".py", ".h", ".cuh"}:
                h.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return h.hexdigest()[:16]


def find_kernels(folders: Iterable[Path]) -> dict[str, Path]:
    """Kernel folders by name; a folder is a kernel when it holds ``workload.py``."""
    found: dict[str, Path] = {}
    for folder in folders:
        if not _is_folder(folder):
            raise KernelFolderError(f"kernel_folders: '{folder}' is not a folder.")
        for path in sorted(p.parent for p in folder.glob("*/workload.py")):
            if path.name in found:
                raise KernelFolderError(
                    f"kernel_folders: kernel '{path.name}' exists twice, in "
                    f"'{found[path.name].parent}' and '{folder}'; rename one."
                )
            found[path.name] = path
    return found


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long, a parent that may not be read
        return False


def load_kernel(path: Path) -> KernelFolder:
    """Load ``workload.py`` of a kernel folder.

    Raises KernelFolderError when it does not import or defines no fitting WORKLOAD. What it changes
    of the process meanwhile is put back (see `fence`); another working directory is refused, since
    what a module does next would depend on it.
    """
    spec = importlib.util.spec_from_file_location(
        f"gpushmoo_kernel_{path.name}", path / "workload.py"
    )
    if spec is None or spec.loader is None:
        raise KernelFolderError(f"Kernel folder '{path}' holds no workload.py.")
    module = importlib.util.module_from_spec(spec)
    # A data class with postponed annotations looks its module up there.
    sys.modules[spec.name] = module
    file = path / "workload.py"
    try:
        with loading(path) as fence:
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as err:
        del sys.modules[spec.name]
        raise KernelFolderError(
            f"Kernel '{path.name}': workload.py does not load ({blamed(file, 'it', err)})."
        ) from err
    if fence.moved is not None:
        raise KernelFolderError(
            f"Kernel '{path.name}': {file_label(file)} {moved_clause(fence.moved)}."
        )
    workload = getattr(module, "WORKLOAD", None)
    if not isinstance(workload, Workload):
        raise KernelFolderError(
            f"Kernel '{path.name}': workload.py must define WORKLOAD, an instance of Workload."
        )
    name = getattr(workload, "name", None)
    if name != path.name:
        raise KernelFolderError(
            f"Kernel '{path.name}': its WORKLOAD calls itself '{name}'; folder and name must agree."
        )
    fault = _broken_promise(workload)
    if fault is not None:
        raise KernelFolderError(f"Kernel '{path.name}': {fault}.")
    return KernelFolder(path, workload)


def _broken_promise(workload: Workload) -> str | None:
    """What is wrong with a workload that would else come out only once its cells are measured."""
    if not re.fullmatch("[A-Za-z0-9_]+", workload.name):
        return "its name must consist of letters, digits and '_'"
    for name in ("title", "pattern", "dtypes", "variants", "axes"):
        if not hasattr(workload, name):
            return f"its WORKLOAD does not define '{name}'"
    for dtype in workload.dtypes:
        if dtype not in DTYPES:
            return f"its dtype '{dtype}' is not known; allowed: {', '.join(DTYPES)}"
    fault = axis_fault(workload.axes)
    return None if fault is None else f"its {fault}"
