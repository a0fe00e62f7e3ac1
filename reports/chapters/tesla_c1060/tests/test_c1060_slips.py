"""Slips of the first document, each derived from the numbers that the document itself gives."""

from __future__ import annotations

import json

import pytest
from conftest import ROOT
from tesla_c1060.charts import Multiplier, SaturatedCopy, saturated_bandwidth_gbs
from tesla_c1060.simulation.machine import half_warp_bytes, transfer_beats
from tesla_c1060.simulation.reference import (
    CORRECTED_ASSUMPTIONS,
    FIRST_ASSUMPTIONS,
    Chart,
    TileCopy,
    simulate,
)
from test_machine import C1060

SLIPS = json.loads((ROOT / "reports/chapters/tesla_c1060/published/slips.json").read_text())


def slip(words: str) -> dict[str, str]:
    (found,) = [s for s in SLIPS if words in s["slip"]]
    return found


def test_the_published_rates_exceed_the_bus_itself() -> None:
    """The plainest argument against the slip: 64 bytes × 800 MHz, as the slip's text says."""
    bus_gbs = C1060.bus_bytes * C1060.memory_data_rate_mhz / 1000
    assert bus_gbs == 51.2
    for itemsize, published in ((4, 54.3553), (8, 54.5904)):
        ours = saturated_bandwidth_gbs(C1060, SaturatedCopy(), itemsize, Multiplier.CORRECTED)
        assert ours < bus_gbs < published
    assert "64 bytes × 800 MHz = 51.2 GB/s" in slip("multiprocessors (30)")["why"]


def test_eight_blocks_keep_to_the_law_that_is_given_for_less() -> None:
    """Transfers of all blocks' half-warps of double against one index computation."""
    for assumptions, words in (
        (FIRST_ASSUMPTIONS, "take 16, an index 20"),
        (CORRECTED_ASSUMPTIONS, "32 against 36"),
    ):
        transfers = 8 * transfer_beats(C1060, half_warp_bytes(C1060, 8)) * assumptions.beat_cycles
        assert transfers < assumptions.index_cycles
        assert f"{transfers}" in words
        assert f"{assumptions.index_cycles}" in words
        assert words in slip("less than 8")["why"]
    load = {size: TileCopy.square(C1060, 256, size) for size in (4, 8)}
    gbs = {
        (size, n): simulate(
            C1060, load[size], n, chart=Chart(), assumptions=FIRST_ASSUMPTIONS
        ).bandwidth_gbs
        for size in (4, 8)
        for n in (4, 8)
    }
    assert gbs[8, 8] / gbs[4, 8] == pytest.approx(2, rel=0.01)


def test_the_capability_is_that_of_the_devices_numbers() -> None:
    """Threads of an SM, processors, and whether there is double: of every capability up to 2.1."""
    known = {
        **dict.fromkeys(("1.0", "1.1"), (768, 8, False)),
        "1.2": (1024, 8, False),
        "1.3": (1024, 8, True),
        "2.0": (1536, 32, True),
        "2.1": (1536, 48, True),
    }
    ours = (C1060.max_threads_per_sm, 8, True)
    assert C1060.index_cycles == 2 * 18  # 8 processors take two turns for 16 threads
    named = slip("compute capability")
    assert [c for c, facts in known.items() if facts == ours] == [named["corrected"]]
    assert named["published"] not in known
