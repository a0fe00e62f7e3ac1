"""Digests of the code that jobs depend on: a change makes Snakemake run them again.

Snakemake does not see what a script imports. Each rule therefore has a parameter ``code``: a digest
of a package of the library and of all layers below it. import-linter checks that no package imports
one that is above it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from ..core.paths import IMPORTED, PACKAGE, ROOT
from ..core.python_digest import python_digest
from ..registry import extra_folders, extras
from ..workloads.loader import shared_code, source_files

# The library's packages, and the modules beside them, from the lowest layer to the highest:
# [tool.importlinter] in pyproject.toml has the same, and a test compares them.
LAYERS = (
    ("core",),
    ("workloads", "storage"),
    ("search", "devices"),
    ("measuring", "analysis"),
    ("comparing", "model"),
    ("figures", "studies", "chapters", "registry", "stages"),
    ("report", "exporting", "planning", "pytest_entry"),
    ("interactive",),
    ("extras",),
)


@cache
def code_of(package: str, *others: Path) -> str:
    """Digest of a package of the library, of all layers below it, and of `others`.

    These are files, or folders of which the Python code counts without its tests. Bytes are
    compared, so comments count.
    """
    own = {f.relative_to(PACKAGE).as_posix(): f.read_bytes() for f in code_files(package)}
    # Two of them may have one name.
    for number, path in enumerate(others):
        own |= {f"{number}/{name}": code for name, code in _python_in(path).items()}
    return _digest(own)


def code_files(package: str) -> list[Path]:
    """The files of a package of the library and of all layers below it."""
    level = next(n for n, layer in enumerate(LAYERS) if package in layer)
    below = [name for layer in LAYERS[:level] for name in layer]
    return [
        PACKAGE / "__init__.py",
        *(file for name in [*below, package] for file in _files_of(PACKAGE / name)),
    ]


def extra_code(name: str, *files: str) -> list[Path]:
    """These files of an extra, by default all, also those that are not Python, but no tests."""
    folder = extra_folders()[name]
    if files:
        return [folder / file for file in files]
    return sorted(f for f in source_files(folder) if "tests" not in f.relative_to(folder).parts)


def code_of_extras(part: str) -> list[Path]:
    """The files of the extras that add to a part, as `registry.Extra` names it."""
    return [file for name, e in extras().items() if getattr(e, part) for file in extra_code(name)]


def _files_of(package: Path) -> Iterator[Path]:
    """The files of a package, also those that are not Python, or the module of this name."""
    return source_files(package) if package.is_dir() else iter([package.with_suffix(".py")])


def _python_in(folder: Path) -> dict[str, bytes]:
    """The Python code of a folder without its tests, by path within it; or one file."""
    if folder.is_file():
        return {folder.name: folder.read_bytes()}
    files = {file.relative_to(folder): file for file in folder.rglob("*.py")}
    return {
        name.as_posix(): file.read_bytes()
        for name, file in files.items()
        if "tests" not in name.parts
    }


def folder_digest(folder: Path) -> str:
    """Digest of the Python code in a folder without its tests."""
    return _digest(_python_in(folder))


@cache
def shared_digest(kernel: Path) -> str:
    """Digest of the modules that a kernel's folder shares with others.

    Comments and docstrings do not count.
    """
    files = shared_code(kernel, IMPORTED[1:])
    return _digest(
        {
            name: python_digest(code) if name.endswith(".py") else code
            for name, code in files.items()
        }
    )


def template_digest(chapters: Iterable[Path]) -> str:
    """Digest of the report's templates, those of these chapters' folders, and what they print."""
    files = (p for f in chapters for p in [f / "pages.typ", *(f / "published").rglob("*")])
    return file_digest(*(ROOT / "reports").glob("*.typ"), *(p for p in files if p.is_file()))


def file_digest(*paths: Path) -> str:
    """Digest of files by their names and bytes (templates, device files)."""
    h = hashlib.sha256()
    for path in sorted(paths):
        h.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return h.hexdigest()[:16]


def _digest(contents: dict[str, bytes]) -> str:
    """Digest of contents and their names, in no order."""
    h = hashlib.sha256()
    for name, content in sorted(contents.items()):
        h.update(f"{name}\0{len(content)}\0".encode() + content)
    return h.hexdigest()[:16]
