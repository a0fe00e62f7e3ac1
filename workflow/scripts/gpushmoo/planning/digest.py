"""Compute digests of the code that jobs depend on, so that a change makes Snakemake run them again.

Snakemake does not see the modules that a script imports. Each rule therefore has a parameter
``code``: a digest of a package of the library and of all layers below it. import-linter checks that
no package imports a package above it.
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
    """Return a digest of the code that a rule depends on. Its parameter ``code`` has this value.

    The digest covers the bytes of the files, so a changed comment changes it.

    Parameters
    ----------
    package
        Package of the library. All layers below it count as well.
    *others
        Additional files, and folders whose Python files count without their tests.
    """
    own = {f.relative_to(PACKAGE).as_posix(): f.read_bytes() for f in code_files(package)}
    # Two of them may have one name.
    for number, path in enumerate(others):
        own |= {f"{number}/{name}": code for name, code in _python_in(path).items()}
    return _digest(own)


def code_files(package: str) -> list[Path]:
    """Return all files of a package of the library and of all layers below it."""
    level = next(n for n, layer in enumerate(LAYERS) if package in layer)
    below = [name for layer in LAYERS[:level] for name in layer]
    return [
        PACKAGE / "__init__.py",
        *(file for name in [*below, package] for file in _files_of(PACKAGE / name)),
    ]


def extra_code(name: str, *files: str) -> list[Path]:
    """Return files of an extra, without its tests.

    Parameters
    ----------
    name
        Name of the extra.
    *files
        Paths in its folder, by default all files, including those that are not Python.
    """
    folder = extra_folders()[name]
    if files:
        return [folder / file for file in files]
    return sorted(f for f in source_files(folder) if "tests" not in f.relative_to(folder).parts)


def code_of_extras(part: str) -> list[Path]:
    """Return the files of all extras that add something of one kind.

    Parameters
    ----------
    part
        The kind, an attribute of `registry.Extra`, for example ``exports``.
    """
    return [file for name, e in extras().items() if getattr(e, part) for file in extra_code(name)]


def _files_of(package: Path) -> Iterator[Path]:
    """Yield all files of a package, not only Python, or the module of this name."""
    return source_files(package) if package.is_dir() else iter([package.with_suffix(".py")])


def _python_in(folder: Path) -> dict[str, bytes]:
    """Return the Python code of a folder without its tests, or of one file, by relative path."""
    if folder.is_file():
        return {folder.name: folder.read_bytes()}
    files = {file.relative_to(folder): file for file in folder.rglob("*.py")}
    return {
        name.as_posix(): file.read_bytes()
        for name, file in files.items()
        if "tests" not in name.parts
    }


def folder_digest(folder: Path) -> str:
    """Return a digest of the Python files in a folder, without those of its tests."""
    return _digest(_python_in(folder))


@cache
def shared_digest(kernel: Path) -> str:
    """Return a digest of the modules that a kernel imports from outside its folder.

    Comments and docstrings do not count.

    Parameters
    ----------
    kernel
        Folder of the kernel.
    """
    files = shared_code(kernel, IMPORTED[1:])
    return _digest(
        {
            name: python_digest(code) if name.endswith(".py") else code
            for name, code in files.items()
        }
    )


def template_digest(chapters: Iterable[Path]) -> str:
    """Return a digest of the report's Typst templates and of the files that chapters print.

    Parameters
    ----------
    chapters
        Folders of the run's chapters.
    """
    files = (p for f in chapters for p in [f / "pages.typ", *(f / "published").rglob("*")])
    return file_digest(*(ROOT / "reports").glob("*.typ"), *(p for p in files if p.is_file()))


def file_digest(*paths: Path) -> str:
    """Return a digest of files that covers their names and bytes, for example of templates."""
    h = hashlib.sha256()
    for path in sorted(paths):
        h.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return h.hexdigest()[:16]


def _digest(contents: dict[str, bytes]) -> str:
    """Return a digest of contents by name, which does not depend on their order."""
    h = hashlib.sha256()
    for name, content in sorted(contents.items()):
        h.update(f"{name}\0{len(content)}\0".encode() + content)
    return h.hexdigest()[:16]
