"""Digests of the code that a stage depends on, so that Snakemake reruns exactly what must be.

Snakemake does not see the modules that a script imports. Each rule therefore carries, as a
parameter, the digest of the module that it calls and of all that this imports from the project,
directly or not.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..core.paths import IMPORTED, PACKAGE, ROOT
from ..core.python_digest import tree_digest
from ..storage.wholefile import DamagedFileError, read_json, write_json

# Folders and files are texts within this module: the paths of pathlib made it a sixth of a dry run.
Folders = tuple[str, ...]

# What was read of files, by the hash of their bytes, is kept for the next process as Python keeps
# its byte code: to parse the two hundred modules behind the rules was a third of a dry run. With
# more files than MOST_FILES only those of one run are kept.
KEPT = Path(__file__).parent / "__pycache__" / "read_code.json"
MOST_FILES = 2000
# A text that names a module: another process is to run it, or it is imported where it is needed.
_MODULE_NAME = re.compile(rf"{PACKAGE.name}(\.\w+)+")


class Code(NamedTuple):
    """The digest of a module's own code, and what it may import: levels and dotted names."""

    digest: str
    imports: list[tuple[int, str]]


@cache
def code_digest(file: Path) -> str:
    """Digest of the code of `file`, a script or module, and of all that it imports."""
    return _digest_of(_reached(str(file)), _folders(file))


def module_digest(name: str) -> str:
    """`code_digest` of a module of the project, dotted, that is only imported by its name."""
    stem = name.rpartition(".")[2]
    # A chapter outside of the project lies where its own folder was lent.
    lent = tuple(sys.path)
    for path in map(Path, _module_files(name, _imported()) or _module_files(name, lent)):
        if stem in (path.stem, path.parent.name if path.stem == "__init__" else None):
            return code_digest(path)
    raise ValueError(f"no module '{name}'")


@cache
def library_digest(file: Path) -> str:
    """Digest of the code that `file` imports, without its own."""
    return _digest_of(_reached(str(file)) - {str(file)}, _folders(file))


def product_digest(file: Path) -> str:
    """`code_digest` without what only words and files are made of: `core` and `storage`."""
    shared = (f"{PACKAGE}/core/", f"{PACKAGE}/storage/", f"{PACKAGE}/__init__.py")
    deciding = (path for path in _reached(str(file)) if not path.startswith(shared))
    return _digest_of(deciding, _folders(file))


def modules_of(file: Path) -> frozenset[Path]:
    """`file` and the files of all of the project's modules that it imports.

    Modules are looked up where the project has them, and beside `file` or its folder: of a kernel
    these are what it shares with its neighbours.
    """
    return frozenset(map(Path, _reached(str(file))))


@cache
def _reached(file: str) -> frozenset[str]:
    folders = _folders(Path(file))
    reached: set[str] = set()
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += _imports_of(path, folders)
    return frozenset(reached)


@cache
def _imports_of(path: str, folders: Folders) -> list[str]:
    """The files of the project's modules that this one itself imports."""
    files: list[str] = []
    for level, name in _code(path).imports:
        inside = path
        for _ in range(level):
            inside = os.path.dirname(inside)
        files += _module_files(name, (inside,) if level else folders)
    return files


def _imported() -> Folders:
    return tuple(map(str, IMPORTED))


def _folders(file: Path) -> Folders:
    return tuple(dict.fromkeys((*_imported(), str(file.parent), str(file.parent.parent))))


@cache
def _names_in(folder: str) -> frozenset[str]:
    """What lies in a folder; nothing if it is none. Most modules are of other projects."""
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


@cache
def _module_files(name: str, folders: Folders) -> list[str]:
    """Files of a module, dotted, and of the packages in which it lies; none of other projects'."""
    parts = name.split(".")
    for folder in folders:
        if _names_in(folder).isdisjoint((parts[0], f"{parts[0]}.py")):
            continue
        bases = (os.path.join(folder, *parts[:n]) for n in range(1, len(parts) + 1))
        files = (name for base in bases for name in (f"{base}/__init__.py", f"{base}.py"))
        if present := [name for name in files if os.path.isfile(name)]:
            return present
    return []


@cache
def _code(path: str) -> Code:
    return read_code(Path(path).read_bytes())


def read_code(source: bytes) -> Code:
    """The code of a Python file of these bytes. Raises SyntaxError."""
    key = hashlib.sha256(_reader() + source).hexdigest()
    found = _kept().get(key)
    if found is None:
        tree = ast.parse(source)
        found = tree_digest(tree).hex(), sorted(set(_imports(tree)))
    _READ[key] = found
    return Code(*found)


_READ: dict[str, Any] = {}


@cache
def _reader() -> bytes:
    """Digest of the code that reads sources; what another reader found is not reused."""
    files = (Path(__file__), PACKAGE / "core" / "python_digest.py")
    return b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)


@cache
def _kept() -> dict[str, Any]:
    try:
        return dict(read_json(KEPT)["files"])
    except (OSError, DamagedFileError, LookupError, TypeError, ValueError):
        return {}


def keep_read_code() -> None:
    """Have the next process find what this one has read, unless Python keeps nothing (``-B``)."""
    before = _kept()
    if not _READ.keys() <= before.keys() and not sys.dont_write_bytecode:
        with suppress(OSError):
            KEPT.parent.mkdir(exist_ok=True)
            write_json(KEPT, {"files": _READ if len(before) > MOST_FILES else before | _READ})


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What the module imports anywhere or names in a text; see `Code`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            stem = f"{node.module}." if node.module else ""
            yield from ((node.level, f"{stem}{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Constant) and _MODULE_NAME.fullmatch(str(node.value)):
            yield 0, str(node.value)


def _digest_of(modules: Iterable[str], folders: Folders) -> str:
    within = [f"{folder}/" for folder in folders]
    named: dict[str, str] = {}
    for path in modules:
        folder = next(folder for folder in within if path.startswith(folder))
        named[path.removeprefix(folder)] = _code(path).digest
    h = hashlib.sha256()
    for name, digest in sorted(named.items()):
        h.update(name.encode() + b"\0" + bytes.fromhex(digest))
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
