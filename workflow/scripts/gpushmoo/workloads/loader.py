"""Finds and loads kernel folders. A kernel is one folder; nothing else names it."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..core.dtypes import DTYPES
from ..core.errors import WorkloadError
from ..core.python_digest import python_digest
from ..core.schema import axis_fault
from .contract import Workload
from .fence import loading
from .user_code import blamed, file_label, moved_clause
from .views import view_fault

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


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

    def digest(self, source_suffix: str | None) -> str:
        """Hash over the folder's files; part of every row's provenance.

        Sources for other backends than the one that compiles ``kernel`` with the suffix are left
        out, unless another file includes them; with None none is. Of Python counts what it does.
        """
        files = {path.relative_to(self.path).as_posix(): path for path in _sources(self.path)}
        own = "kernel." if source_suffix is None else f"kernel{source_suffix}"
        names = {name for name in files if name.startswith(own) or not name.startswith("kernel.")}
        while more := {i for n in names for i in _included(files[n]) if i in files} - names:
            names |= more
        h = hashlib.sha256()
        for name in sorted(names):
            data = files[name].read_bytes()
            is_python = files[name].suffix == ".py"
            content = python_digest(data) if is_python else hashlib.sha256(data).digest()
            h.update(name.encode() + b"\0" + content)
        return h.hexdigest()[:16]


def _sources(folder: Path) -> Iterator[Path]:
    """All files below `folder` but hidden ones, caches and texts for people."""
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        is_apart = any(p.startswith(".") or p == "__pycache__" for p in parts)
        if path.is_file() and not is_apart and path.suffix != ".md":
            yield path


def _included(path: Path) -> Iterator[str]:
    """Names of the files that a source includes, relative to its own folder."""
    return (name.decode(errors="replace") for name in _INCLUDE.findall(path.read_bytes()))


def find_kernels(folders: Iterable[Path]) -> dict[str, Path]:
    """Kernel folders by name; a folder is a kernel when it holds ``workload.py``."""
    found: dict[str, Path] = {}
    for folder in folders:
        if not is_folder(folder):
            raise KernelFolderError(f"kernel_folders: '{folder}' is not a folder.")
        for path in sorted(p.parent for p in folder.glob("*/workload.py")):
            if path.name in found:
                raise KernelFolderError(
                    f"kernel_folders: kernel '{path.name}' exists twice, in "
                    f"'{found[path.name].parent}' and '{folder}'; rename one."
                )
            found[path.name] = path
    return found


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder that can be looked into; a name that is too long is none."""
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
    # What kernels of one folder share lies in packages beside them.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
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
    try:
        fault = axis_fault(workload.axes) or view_fault(workload.views)
    except WorkloadError as err:
        return str(err)
    return None if fault is None else f"its {fault}"
