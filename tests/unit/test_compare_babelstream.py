"""What tests/gpu/compare_babelstream.py reads, sweeps and says; no device."""

from __future__ import annotations

import pytest
from gpushmoo.core.space import Problem, enumerate_cells
from test_compare_kernel_tuner import load

script = load("compare_babelstream")

PRINTED = """phase,n_elements,sizeof,max_mbytes_per_sec,runtime
Init,1024,8,1.0,0.1
function,num_times,n_elements,sizeof,max_mbytes_per_sec,min_runtime,max_runtime,avg_runtime
Copy,101,1024,8,4000000,0.001,0.004,0.002
Mul,101,1024,8,3000000,0.001,0.001,0.001
Add,101,1024,8,3000000,0.001,0.001,0.001
Triad,101,1024,8,3.5e+06,0.001,0.001,0.001
Dot,101,1024,8,3000000,0.001,0.001,0.001
"""


def test_both_figures_of_each_function_are_read() -> None:
    found = script.read_csv(PRINTED)
    assert found["Copy"] == {"max": 4000, "average": 2000}
    assert found["Triad"]["max"] == 3500
    with pytest.raises(SystemExit, match="no line of Dot"):
        script.read_csv(PRINTED.replace("Dot", "Dit"))


@pytest.mark.parametrize(("kernel", "params"), [("stream", ()), ("stream_dot", (("grid", 528),))])
def test_their_launch_is_in_our_sweep_once(
    kernel: str, params: tuple[tuple[str, int], ...]
) -> None:
    axes = script.axes_of(kernel, 132)
    cells = enumerate_cells(kernel, "float", ["copy"], [Problem(1, 1024)], axes)
    [theirs] = [cell for cell in cells if script.is_theirs(cell, 132)]
    assert set(theirs.params) == {("threads", 1024), ("unroll", 1), *params}


def test_ratios_are_taken_within_a_round() -> None:
    ours = {"best": 4.0, "best, fastest": 5.0, "theirs": 2.0, "theirs, fastest": 2.0}
    rounds = [{k: f * v for k, v in (ours | {"max": 2.0, "average": 1.0}).items()} for f in (1, 9)]
    found = script.ratios(rounds * 3)
    spread = dict.fromkeys(("median", "low", "high", "least", "greatest"), 2.0)
    assert found["best launch, median, over max"] == spread
    assert found["their launch, median, over average"]["median"] == 2
    assert found["best launch, fastest, over max"]["median"] == 2.5
