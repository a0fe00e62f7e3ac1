"""What the record holds is what the simulator, the checks and the figures of today make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from gpushmoo.figures.simulated import simulated
from gpushmoo.planning.recorded import RECORD
from gpushmoo.simulation.stages import simulate_device
from tesla_c1060.atlas import build_atlas
from tesla_c1060.checks import check_published
from tesla_c1060.figures.float3 import float3
from tesla_c1060.figures.questions import questions
from tesla_c1060.questions import answer_questions
from tesla_c1060.stages import simulate_tables, simulate_tile_widths
from test_recorded import ASKED, DEVICE, LEVELS, OPTIONS, cells, kept


def _tables(out: Path) -> None:
    asked = OPTIONS["tables"]
    simulate_tables(DEVICE, LEVELS, asked["sizes"], asked["num_partition"], out, 2)


SIMULATED: dict[str, Callable[[Path], None]] = {
    "blocks": lambda out: simulate_device(
        DEVICE, LEVELS, ASKED["sizes"], ASKED["num_partition"], out, 2
    ),
    "tables": _tables,
    "questions": lambda out: answer_questions(
        DEVICE, OPTIONS["questions"], out, out.with_name("profile"), 2
    ),
    "profile": lambda out: answer_questions(
        DEVICE, OPTIONS["questions"][:1], out.with_name("questions"), out, 2
    ),
    "tiles": lambda out: simulate_tile_widths(DEVICE, LEVELS, OPTIONS["tiles"], out, 2),
}


@pytest.mark.parametrize("kind", SIMULATED)
def test_every_simulated_cell_is_what_is_recorded(kind: str, tmp_path: Path) -> None:
    SIMULATED[kind](tmp_path / "cells")
    pd.testing.assert_frame_equal(cells(tmp_path / "cells"), cells(kept(f"tesla-c1060-{kind}")))


def _float3(svg: Path) -> None:
    float3(cells(kept("tesla-c1060-questions")), cells(kept("tesla-c1060-profile")), svg)


DRAWN: dict[str, Callable[[Path], None]] = {
    "figures-tesla-c1060": lambda out: build_atlas(DEVICE, out),
    "tesla-c1060-checks": lambda out: check_published(
        DEVICE, LEVELS, OPTIONS["latency_cycles"], out
    ),
    "simulated-tesla-c1060": lambda out: simulated(cells(kept("tesla-c1060-blocks")), out),
    "questions-tesla-c1060": lambda out: questions(cells(kept("tesla-c1060-questions")), out),
    "float3-tesla-c1060": _float3,
}


@pytest.mark.parametrize("kind", DRAWN)
def test_every_drawing_and_check_repeats_what_is_recorded_byte_by_byte(
    kind: str, tmp_path: Path
) -> None:
    files = sorted(RECORD.glob(f"{kind}-" + "[0-9a-f]" * 12 + ".*"))
    out = tmp_path / "made"
    DRAWN[kind](out.with_suffix(files[-1].suffix))
    for file in files:
        assert out.with_suffix(file.suffix).read_bytes() == file.read_bytes()
