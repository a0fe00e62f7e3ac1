"""What the code must never do, whatever a configuration or a file holds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from conftest import ROOT

SOURCES = sorted([*(ROOT / "workflow").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")])
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.load"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
# Methods of devices and of Typst's package, which turn sources into programs and pages.
OWN_COMPILERS = {"typst.compile", "re.compile"}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def faults(tree: ast.AST) -> list[str]:
    """What of `tree` runs data as code, or reads objects out of files."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module] if node.module.split(".")[0] in FORBIDDEN_MODULES else []
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in FORBIDDEN_CALLS - OWN_COMPILERS:
                found.append(name)
            for keyword in node.keywords:
                value = keyword.value
                on = isinstance(value, ast.Constant) and value.value is True
                if on and keyword.arg in ("shell", "allow_pickle"):
                    found.append(f"{name}({keyword.arg}=True)")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_data_is_never_run_as_code(path: Path) -> None:
    assert faults(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "eval(x)",
        "import pickle",
        "from pickle import loads",
        "import subprocess\nsubprocess.run(x, shell=True)",
        "import yaml\nyaml.load(x)",
        "import numpy as np\nnp.load(x, allow_pickle=True)",
    ],
)
def test_the_check_sees_each_of_them(source: str) -> None:
    assert faults(ast.parse(source))
