"""What the report says of clocks that moved, or were locked."""

from __future__ import annotations

from typing import Any

from gpushmoo.analysis.run_quality import clocks_seen
from gpushmoo.report.sureness import clock_warning, locked_clause


def shard(*clocks: int, memory: int = 3201, reasons: tuple[str, ...] = (), **other: Any) -> Any:
    """A shard's provenance with a reading of each core clock."""
    readings = [
        {"at_s": 0.0, "sm_clock_mhz": c, "memory_clock_mhz": memory, "reasons": list(reasons)}
        for c in clocks
    ]
    return {"device": {"name": "H"}, "clocks_seen": clocks_seen(readings)} | other


LOCKED = {"asked": 1500, "locked": True, "core": 1500, "memory_mhz": 3201, "why": None}
REFUSED = {**LOCKED, "locked": False, "core": None, "why": "it may not"}


def test_clocks_that_moved_are_named_with_their_range() -> None:
    found = clock_warning([shard(1980, 1980), shard(1410)])
    assert found.startswith(
        "The clocks of H were not locked and moved: its core ran at 1,410 to 1,980 MHz (29 % "
        "apart) in 3 readings. "
    )
    assert "lock_clocks: base" in found


def test_both_clocks_and_what_held_them_are_named() -> None:
    found = clock_warning([shard(1500, reasons=("sw_power_cap",)), shard(1980, memory=1600)])
    assert "its core ran at 1,500 to 1,980 MHz" in found
    assert "and its memory ran at 1,600 to 3,201 MHz (50 % apart)" in found
    assert "held down by the board's power limit in 50 % of them" in found


def test_nothing_is_said_of_steady_idle_unknown_or_locked_clocks() -> None:
    idle = shard(210, reasons=("gpu_idle",))
    assert clock_warning([shard(1980, 1965), idle]) == ""
    assert clock_warning([shard(), shard()]) == ""
    assert clock_warning([shard(1400, 1980, clocks=LOCKED)]) == ""
    assert clock_warning([shard(1400, 1980, clocks=REFUSED)]) != ""


def test_devices_of_different_names_are_judged_apart() -> None:
    other = shard(1000) | {"device": {"name": "other"}}
    assert clock_warning([shard(1980), other]) == ""


def test_a_run_that_asked_for_it_says_how_far_clocks_were_locked() -> None:
    assert locked_clause([shard(1980)]) == []
    assert locked_clause([shard(clocks=LOCKED)]) == ["The core's clocks were locked at 1500 MHz."]
    base = {**LOCKED, "core": "base"}
    assert locked_clause([shard(clocks=base), shard(clocks=REFUSED)]) == [
        "The core's clocks were locked at their base for 1 of 2 shards.",
        "The clocks were not locked as asked: it may not.",
    ]
