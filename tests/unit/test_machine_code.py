"""What the compiler made of a kernel, read from its machine code; no device needed."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from conftest import ROOT
from gpushmoo.devices.nvrtc import build_options, compile_cubin
from gpushmoo.devices.sass import listing, sequence
from gpushmoo.dtypes import DTYPES
from gpushmoo.kernels import load_kernel

FOLDER = ROOT / "kernels/copy2d_document"


@pytest.mark.parametrize(
    ("defines", "full_tile"),
    [
        pytest.param({"MAY_ALIAS": "1"}, "LSLSLSLS", id="published"),
        pytest.param({}, "LLLLSSSS", id="distinct"),
    ],
)
def test_distinct_pointers_let_a_thread_have_all_its_loads_in_flight(
    defines: dict[str, str], full_tile: str
) -> None:
    options = build_options(DTYPES["float"], {"TILE": "32", **defines})
    source = (FOLDER / "kernel.cu").read_text()
    text = listing(compile_cubin(source, FOLDER.name, options, "sm_90"))
    # The masked path at the array's edge comes first and is the same in both.
    assert sequence(text, "copy_rows_8", "global") == "LSLSLS" + full_tile


def test_a_given_value_costs_a_surface_a_load_of_a_constant_and_nothing_else() -> None:
    folder = load_kernel(ROOT / "kernels/surf2d_memset")
    source = folder.source(".cu")
    assert source is not None

    def opcodes(variant: str) -> Counter[str]:
        options = build_options(DTYPES["float"], folder.workload.defines("float", variant))
        text = listing(compile_cubin(source.read_text(), folder.path.name, options, "sm_90"))
        lines = re.findall(r"/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\w+ )?([A-Z0-9.]+)", text)
        return Counter(name for name in lines if name != "NOP")

    given, computed = opcodes("block-one"), opcodes("block-place")
    assert given - computed == Counter({"LDC": 1})
    assert {name.split(".")[0] for name in computed - given} == {"IMAD", "SHF", "I2FP"}
