"""What the compiler made of a kernel, read from its machine code; no device needed."""

from __future__ import annotations

import pytest
from conftest import ROOT
from gpushmoo.devices.nvrtc import build_options, compile_cubin
from gpushmoo.devices.sass import listing, sequence
from gpushmoo.dtypes import DTYPES

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
