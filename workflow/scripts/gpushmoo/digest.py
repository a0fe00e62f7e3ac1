"""Digests of the code that a stage depends on, so that Snakemake reruns exactly what must be.

Snakemake does not see the modules that a script imports. Each rule therefore carries, as a
parameter, the digest of the modules that its entry module imports, directly or not.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def _module_path(name: str) -> Path | None:
    """File of the module `name`, dotted and relative to the package; None when there is none."""
    base = PACKAGE.joinpath(*name.split(".")) if name else PACKAGE
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@dataclass(frozen=True)
class _Module:
    """What a module may import from the package, dotted, and the digest of its own code."""

    imports: frozenset[str]
    digest: bytes


# Most modules are behind most of two dozen rules, and to read one takes milliseconds.
@cache
def _module(path: Path) -> _Module:
    tree = ast.parse(path.read_bytes())
    digest = hashlib.sha256(ast.dump(tree).encode()).digest()
    return _Module(frozenset(_imports(path, tree)), digest)


def _imports(path: Path, tree: ast.AST) -> set[str]:
    """Dotted names, relative to the package, of what the module may import from it."""
    here = list(path.relative_to(PACKAGE).parts[:-1]) if path.is_relative_to(PACKAGE) else []
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted = [alias.name.split(".") for alias in node.names]
            names.update(".".join(parts[1:]) for parts in dotted if parts[0] == PACKAGE.name)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                parts = here[: len(here) - (node.level - 1)]
                parts += node.module.split(".") if node.module else []
            elif node.module and node.module.split(".")[0] == PACKAGE.name:
                parts = node.module.split(".")[1:]
            else:
                continue
            names.add(".".join(parts))
            names.update(".".join([*parts, alias.name]) for alias in node.names)
    return names


@cache
def modules_of(entry: str) -> tuple[Path, ...]:
    """Files of the module `entry` and of all package modules it imports, sorted.

    `entry` is dotted and relative to the package. Raises ValueError when it does not exist.
    """
    start = _module_path(entry)
    if start is None:
        raise ValueError(f"no module '{entry}' in {PACKAGE.name}")
    return tuple(sorted(_closure(start)))


def _closure(start: Path) -> set[Path]:
    found: set[Path] = set()
    queue = [start]
    while queue:
        path = queue.pop()
        if path in found:
            continue
        found.add(path)
        for name in _module(path).imports:
            module = _module_path(name)
            if module is not None:
                queue.append(module)
    return found


@cache
def code_digest(entry: str) -> str:
    """Digest of all code behind `entry`. Comments and layout do not count; docstrings do."""
    return _code_digest(modules_of(entry))


@cache
def library_digest(file: Path) -> str:
    """Digest of the package's code that `file`, which lies elsewhere, imports."""
    return _code_digest(sorted(_closure(file) - {file}))


def _code_digest(modules: Iterable[Path]) -> str:
    h = hashlib.sha256()
    for path in modules:
        h.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0")
        h.update(_module(path).digest)
    return h.hexdigest()[:16]


def file_digest(*paths: Path) -> str:
    """Digest of files that are not Python modules (templates, device files)."""
    h = hashlib.sha256()
    for path in sorted(paths):
        h.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return h.hexdigest()[:16]
