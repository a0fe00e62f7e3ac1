"""Instruments name what the library has."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec

from conftest import ROOT


def test_what_instruments_import_from_the_library_is_there() -> None:
    missing = []
    for path in sorted((ROOT / "experiments").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpushmoo."):
                module = importlib.import_module(str(node.module))
                names = [
                    a.name
                    for a in node.names
                    if not hasattr(module, a.name) and not find_spec(f"{node.module}.{a.name}")
                ]
                missing += [f"{path.name}: {node.module}.{name}" for name in names]
    assert missing == []
