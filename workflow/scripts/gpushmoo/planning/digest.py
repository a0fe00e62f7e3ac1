"""Digests of the code that a stage depends on, so that Snakemake reruns exactly what must be.

Snakemake does not see the modules that a script imports. Each rule therefore carries, as a
parameter, the digest of its script and of all that this imports from the project, directly or not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..core.paths import IMPORTED, PACKAGE, ROOT
from .read_code import CodeReader

_READER = CodeReader()

Folders = tuple[Path, ...]


@dataclass(frozen=True)
class _Module:
    """What a module may import and the digest of its own code.

    `imports` are dotted names, each with the folder that it starts from; None for those to be
    looked up.
    """

    imports: frozenset[tuple[Path | None, str]]
    digest: bytes


def code_digest(file: Path) -> str:
    """Digest of the code of `file`, a script or module, and of all that it imports."""
    return _digest_of(modules_of(file), _folders(file))


def module_digest(name: str) -> str:
    """`code_digest` of a module of the project, dotted, that is only imported by its name."""
    stem = name.rpartition(".")[2]
    for path in _module_files(name, IMPORTED):
        if stem in (path.stem, path.parent.name if path.stem == "__init__" else None):
            return code_digest(path)
    raise ValueError(f"no module '{name}'")


def library_digest(file: Path) -> str:
    """Digest of the code that `file` imports, without its own."""
    return _digest_of(modules_of(file) - {file}, _folders(file))


def product_digest(file: Path) -> str:
    """`code_digest` without what only words and files are made of: `core` and `storage`."""
    shared = (PACKAGE / "core", PACKAGE / "storage", PACKAGE / "__init__.py")
    deciding = (m for m in modules_of(file) if not any(m.is_relative_to(s) for s in shared))
    return _digest_of(deciding, _folders(file))


@cache
def modules_of(file: Path) -> frozenset[Path]:
    """`file` and the files of all of the project's modules that it imports.

    Modules are looked up where the project has them, and beside `file` or its folder: of a kernel
    these are what it shares with its neighbours.
    """
    folders = _folders(file)
    reached: set[Path] = set()
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            for start, name in _module(path).imports:
                waiting += _module_files(name, folders if start is None else (start,))
    return frozenset(reached)


def _folders(file: Path) -> Folders:
    return tuple(dict.fromkeys((*IMPORTED, file.parent, file.parent.parent)))


@cache
def _module_files(name: str, folders: Folders) -> list[Path]:
    """Files of a module, dotted, and of the packages in which it lies; none of other projects'."""
    parts = name.split(".")
    for folder in folders:
        bases = [folder.joinpath(*parts[:n]) for n in range(1, len(parts) + 1)]
        files = [path for b in bases for path in (b / "__init__.py", b.with_suffix(".py"))]
        if present := [path for path in files if path.is_file()]:
            return present
    return []


# Most modules are behind most of two dozen rules, and to read one takes milliseconds.
@cache
def _module(path: Path) -> _Module:
    read = _READER.read(path.read_bytes())
    starts = ((path.parents[level - 1] if level else None, name) for level, name in read.imports)
    return _Module(frozenset(starts), read.digest)


def keep_read_code() -> None:
    """Have the next process find what this one has read of files that stay as they are."""
    _READER.keep()


def _digest_of(modules: Iterable[Path], folders: Folders) -> str:
    named: dict[str, bytes] = {}
    for path in modules:
        folder = next(folder for folder in folders if path.is_relative_to(folder))
        named[path.relative_to(folder).as_posix()] = _module(path).digest
    h = hashlib.sha256()
    for name, digest in sorted(named.items()):
        h.update(name.encode() + b"\0" + digest)
    return h.hexdigest()[:16]


def template_digest(chapters: Iterable[Path]) -> str:
    """Digest of the report's templates, those of these chapters' folders, and what they print."""
    files = (p for f in chapters for p in [f / "pages.typ", *(f / "published").rglob("*")])
    return file_digest(*(ROOT / "reports").glob("*.typ"), *(p for p in files if p.is_file()))


def page_digest() -> str:
    """Digest of the sources of the explorer's page, which are no Python."""
    return file_digest(*(p for p in (PACKAGE / "explorer" / "page").rglob("*") if p.is_file()))


def file_digest(*paths: Path) -> str:
    """Digest of files that are not Python modules (templates, device files)."""
    h = hashlib.sha256()
    for path in sorted(paths):
        h.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return h.hexdigest()[:16]
