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


def without_encoding(tree: ast.AST) -> list[str]:
    """Calls that read or write text in whatever encoding the user's locale has."""
    found = []
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        name, options = dotted(call.func), {k.arg: k.value for k in call.keywords}
        if "encoding" in options or name.startswith(("os.open", "pa.")):
            continue
        method = name.rsplit(".", 1)[-1]
        # The mode comes first where the file is what is opened, by Path.open.
        place = 0 if isinstance(call.func, ast.Attribute) and method == "open" else 1
        modes = [*call.args[place : place + 1], *filter(None, [options.get("mode")])]
        binary = any(isinstance(m, ast.Constant) and "b" in str(m.value) for m in modes)
        opened = method in ("open", "fdopen") and not binary
        if opened or method in ("read_text", "write_text") or "text" in options:
            found.append(ast.unparse(call))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_text_is_utf_8_whatever_the_locale(path: Path) -> None:
    assert without_encoding(ast.parse(path.read_bytes())) == []


@pytest.mark.parametrize(
    ("source", "faulty"),
    [
        ("path.read_text()", True),
        ("path.write_text(x)", True),
        ("path.open()", True),
        ("path.open('w')", True),
        ("open(path, mode='a')", True),
        ("os.fdopen(2, 'w')", True),
        ("subprocess.run(x, text=True)", True),
        ("path.read_text(encoding='utf-8')", False),
        ("path.open('rb')", False),
        ("open(path, 'wb')", False),
        ("subprocess.run(x, encoding='utf-8')", False),
    ],
)
def test_which_calls_leave_the_encoding_to_the_locale(source: str, faulty: bool) -> None:
    assert bool(without_encoding(ast.parse(source))) == faulty


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
