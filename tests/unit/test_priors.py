"""What recorded shards say of launches elsewhere."""

from __future__ import annotations

from conftest import ROOT
from gpushmoo.core.space import CellGroup, Problem
from gpushmoo.measuring.searching import recorded_launches

RECORD = ROOT / "reports/reference/nvidia-h200-gallery"


def test_recorded_launches_are_those_of_the_nearest_size_and_type() -> None:
    recorded = recorded_launches(RECORD, "transpose")
    group = CellGroup(Problem(4096, 4096), "warm", "tile")
    near = recorded.near("float", group)
    assert near
    assert min(prior.slower for prior in near) == 1.0
    assert {name for name, _ in near[0].params} == {"TILE", "ROWS", "PAD", "block_x"}
    assert recorded.near("float", CellGroup(Problem(4096, 4096), "warm", "no such variant")) == ()


def test_other_kernels_are_passed_over() -> None:
    nothing = recorded_launches(RECORD, "no_such_kernel")
    assert nothing.near("float", CellGroup(Problem(64, 64), "warm", "tile")) == ()
