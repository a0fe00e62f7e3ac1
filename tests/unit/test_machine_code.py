"""What the compiler made of a kernel, read from its machine code; no device needed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import nvidia
import pytest
from conftest import ROOT
from cuda.core import Program, ProgramOptions

SOURCE = (ROOT / "kernels/copy2d_document/kernel.cu").read_text()


def accesses(tmp_path: Path, entry: str, defines: dict[str, str]) -> str:
    """The global loads (L) and stores (S) of `entry` in the order of its sm_90 code."""
    macros = [("element_t", "float"), ("TILE", "32"), *defines.items()]
    options = ProgramOptions(arch="sm_90", std="c++17", define_macro=macros)
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(bytes(Program(SOURCE, "c++", options).compile("cubin").code))
    found = [p for root in nvidia.__path__ for p in Path(root).glob("**/bin/nvdisasm")]
    text = subprocess.run(
        [found[0], "-c", cubin], capture_output=True, text=True, check=True
    ).stdout
    section = text[text.index(f".text.{entry}:") :]
    section = re.split(r"\n\s*\.section", section)[0]
    return "".join(op[0] for op in re.findall(r"\b(LDG|STG)\b", section))


@pytest.mark.parametrize(
    ("defines", "full_tile"),
    [
        pytest.param({"MAY_ALIAS": "1"}, "LSLSLSLS", id="published"),
        pytest.param({}, "LLLLSSSS", id="distinct"),
    ],
)
def test_distinct_pointers_let_a_thread_have_all_its_loads_in_flight(
    tmp_path: Path, defines: dict[str, str], full_tile: str
) -> None:
    # The masked path at the array's edge comes first and is the same in both.
    assert accesses(tmp_path, "copy_rows_8", defines) == "LSLSLS" + full_tile
