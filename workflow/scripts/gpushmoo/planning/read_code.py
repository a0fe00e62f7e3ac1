"""What was read in Python files, kept for the next process as Python keeps its byte code.

Two hundred modules stand behind the rules. To parse each and to take its digest was a third of a
dry run; a file with the same bytes has the same digest.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.paths import PACKAGE
from ..core.python_digest import tree_digest
from ..storage.wholefile import DamagedFileError, read_json, write_json

KEPT = Path(__file__).parent / "__pycache__" / "read_code.json"
# With more files than this only those of one run are kept.
MOST_FILES = 2000

# A text that names a module: another process is to run it, or it is imported where it is needed.
_MODULE_NAME = re.compile(rf"{PACKAGE.name}(\.\w+)+")

# What reads: other code may find something else.
_READER = b"".join(
    hashlib.sha256(Path(file).read_bytes()).digest()
    for file in (__file__, PACKAGE / "core" / "python_digest.py")
)


@dataclass(frozen=True)
class ReadCode:
    """What a module may import, dotted names with the levels of relative ones, and its digest."""

    imports: frozenset[tuple[int, str]]
    digest: bytes


@dataclass
class CodeReader:
    """Reads Python files; what it keeps lies in `path`, or nowhere where that cannot be written."""

    path: Path = KEPT
    _kept: dict[str, Any] | None = None
    _new: dict[str, Any] = field(default_factory=dict)

    def read(self, source: bytes) -> ReadCode:
        """The imports and the digest of a file of these bytes. Raises SyntaxError."""
        if self._kept is None:
            self._kept = self._load()
        key = hashlib.sha256(_READER + source).hexdigest()
        found = self._kept.get(key) or self._new.get(key)
        if found is None:
            tree = ast.parse(source)
            digest, imports = tree_digest(tree).hex(), sorted(set(_imports(tree)))
            found = self._new[key] = {"imports": imports, "digest": digest}
        named = frozenset((level, name) for level, name in found["imports"])
        return ReadCode(named, bytes.fromhex(found["digest"]))

    def keep(self) -> None:
        """Write what was read anew, unless Python was told to keep nothing (``-B``)."""
        if self._new and not sys.dont_write_bytecode:
            before = self._kept or {}
            files = before | self._new if len(before) < MOST_FILES else self._new
            with suppress(OSError):
                self.path.parent.mkdir(exist_ok=True)
                write_json(self.path, {"files": files})

    def _load(self) -> dict[str, Any]:
        try:
            return dict(read_json(self.path)["files"])
        except (OSError, DamagedFileError, LookupError, TypeError, ValueError):
            return {}


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What the module imports anywhere or names in a text; see `ReadCode`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            stem = f"{node.module}." if node.module else ""
            yield from ((node.level, f"{stem}{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Constant) and _MODULE_NAME.fullmatch(str(node.value)):
            yield 0, str(node.value)
