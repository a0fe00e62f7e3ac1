"""Compute a digest of the behavior of Python code, independent of the version of Python."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

# The position of a name implies whether it is read or bound (ctx). `u""` equals `""` (kind).
_TELLS_NOTHING = frozenset({"ctx", "kind", "type_comment", "type_ignores"})


@lru_cache
def python_digest(source: bytes, left_out: frozenset[str] = frozenset()) -> bytes:
    """Return SHA-256 of a module's code, see `tree_digest`; of the bytes if it does not parse.

    Parameters
    ----------
    source
        Text of the module in UTF-8.
    left_out
        Names of class attributes to ignore, if a plain assignment sets them and the module does not
        read them.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return hashlib.sha256(source).digest()
    names = left_out.difference(_read_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.body = [item for item in node.body if not _sets(item) & names]
    return tree_digest(tree)


def _read_names(tree: ast.AST) -> Iterator[str]:
    """Yield names of variables and attributes that are read, also by a text of that name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _sets(item: ast.stmt) -> set[str]:
    """Return the one name that an assignment sets; the set is empty for other statements."""
    targets = item.targets if isinstance(item, ast.Assign) else []
    if isinstance(item, ast.AnnAssign):
        targets = [item.target]
    one = targets[0] if len(targets) == 1 else None
    return {one.id} if isinstance(one, ast.Name) else set()


def tree_digest(tree: ast.AST) -> bytes:
    """Return SHA-256 of a syntax tree, regardless of comments, docstrings and layout.

    Empty fields are left out: a later version of Python may add fields to its nodes, which are
    empty for code that an earlier version can read.
    """
    texts: list[str] = []
    waiting: list[Any] = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            texts.append(item)
        else:
            waiting += reversed(_parts(item))
    return hashlib.sha256(" ".join(texts).encode()).digest()


def _parts(item: ast.AST | list[Any]) -> list[Any]:
    """Return the parts of a node or a list of nodes: texts, nodes and lists."""
    if isinstance(item, list):
        return ["[", *map(_part, item), "]"]
    parts: list[Any] = [f"{type(item).__name__}("]
    for name, value in ast.iter_fields(item):
        if isinstance(item, ast.JoinedStr):
            value = _joined(value)
        elif isinstance(value, list):
            value = [x for x in value if not _does_nothing(x)]
        if value is not None and value != [] and name not in _TELLS_NOTHING:
            parts += [f"{name}=", _part(value)]
    return [*parts, ")"]


def _part(value: Any) -> Any:
    """Return a node or a list unchanged, and any other value as a text.

    The text is ASCII, because the characters that `repr` keeps depend on the version of Python.
    """
    return value if isinstance(value, (ast.AST, list)) else ascii(value)


def _does_nothing(item: Any) -> bool:
    """Return whether a statement has no effect: a docstring, ``pass`` or ``...``."""
    is_constant = isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
    return is_constant or isinstance(item, ast.Pass)


def _joined(values: list[ast.expr]) -> list[ast.expr]:
    """Join the fixed parts of an f-string, which Python 3.12 splits differently from 3.11."""
    joined: list[ast.expr] = []
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            before = joined[-1] if joined else None
            if isinstance(before, ast.Constant):
                joined[-1] = ast.Constant(f"{before.value!s}{value.value}")
            elif value.value:
                joined.append(value)
        else:
            joined.append(value)
    return joined
