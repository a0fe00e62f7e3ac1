"""Instruments name what the library has."""

from __future__ import annotations

import ast
import importlib
import math
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import ROOT
from gpushmoo.devices.machine_code.cubins import Unit, compile_cubin
from gpushmoo.interactive.shell import _parser
from gpushmoo.workloads.loader import load_kernel
from test_cuda_compiles import cell_of, options_of


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


@pytest.mark.parametrize("percent", [0, 3])
def test_planted_kernels_compile_and_launch_more_blocks(percent: int, tmp_path: Path) -> None:
    planted = runpy.run_path(str(ROOT / "experiments/gpu/ab_planted.py"))
    planted["write_checkout"](tmp_path, percent)
    for name in planted["NAMES"]:
        plain, more = (load_kernel(p / "kernels" / name) for p in (ROOT, tmp_path))
        cell = cell_of(more, "float", more.workload.variants[0])
        blocks = [math.prod(f.workload.launch(cell).grid) for f in (plain, more)]
        assert (blocks[1] > blocks[0]) == (percent > 0)
        options = options_of(more, "float", cell.variant)
        unit = Unit((more.path / "kernel.cu").read_text(), name, options)
        assert compile_cubin(unit, "sm_90").code.startswith(b"\x7fELF")
