"""Instruments name what the library has."""

import ast
import importlib
import runpy
from importlib.util import find_spec

from conftest import ROOT
from gpushmoo.interactive.shell import _parser


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


def test_the_command_that_is_timed_is_one() -> None:
    timed = runpy.run_path(str(ROOT / "experiments/benchmarks/fixed_cost.py"))["SHELL"]
    assert _parser().parse_args(timed[3:]).sizes == [2048]
