"""Timelines of a memory device: one read cycle, reads of several banks, reads of one row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from tesla_c1060.memory import (
    Stage,
    StageSpan,
    burst_beats,
    burst_duration,
    consecutive_reads,
    pipelined_reads,
    read_cycle,
)
from tesla_c1060.simulation.machine import Machine, MachineError, read_cycle_cycles
from test_machine import C1060

BANKS = C1060.banks


def stage(spans: tuple[StageSpan, ...], wanted: Stage) -> list[tuple[Fraction, Fraction]]:
    return [(s.start, s.end) for s in spans if s.stage is wanted]


def test_the_read_cycle_is_tras_and_trp() -> None:
    spans = read_cycle(C1060)
    assert stage(spans, Stage.ROW_ACCESS) == [(0, 12)]
    assert stage(spans, Stage.DATA_RESTORE) == [(12, 21)]
    assert stage(spans, Stage.COLUMN_READ) == [(12, 22)]
    assert stage(spans, Stage.DATA_BURST) == [(22, 24)]
    assert stage(spans, Stage.PRECHARGE) == [(21, 34)]
    assert max(s.end for s in spans) * C1060.memory_cycle == read_cycle_cycles(C1060)
    other = replace(C1060, t_ras_cycles=28, t_rp_cycles=9, banks=replace(BANKS, t_rcd_cycles=14))
    spans = read_cycle(other)
    assert stage(spans, Stage.PRECHARGE) == [(28, 37)]
    assert stage(spans, Stage.COLUMN_READ) == [(14, 24)]


def test_a_burst_of_four_takes_two_cycles_of_double_data_rate() -> None:
    assert burst_beats(C1060) == 4
    assert burst_duration(C1060) == 2
    assert burst_beats(replace(C1060, partitions=7, bus_bytes=56)) == 4
    assert burst_duration(replace(C1060, memory_data_rate_mhz=400)) == 4


def test_reads_of_different_banks_overlap() -> None:
    spans = pipelined_reads(C1060, 4)
    assert [start for start, _ in stage(spans, Stage.COMMAND)] == [0, 8, 16, 24]
    assert spans[-1].end == 3 * 8 + 12 + 10 + 2
    for read in range(4):
        own = [s for s in spans if s.read == read]
        assert all(one.end == two.start for one, two in pairwise(own))
    bursts = stage(spans, Stage.DATA_BURST)
    assert all(one[1] <= two[0] for one, two in pairwise(bursts))


@pytest.mark.parametrize("burst_bytes", [32, 64, 256])
def test_the_bursts_of_one_row_have_no_gap(burst_bytes: int) -> None:
    machine = replace(C1060, banks=replace(BANKS, burst_bytes=burst_bytes))
    spans = consecutive_reads(machine, 4)
    bursts = stage(spans, Stage.DATA_BURST)
    assert all(one[1] == two[0] for one, two in pairwise(bursts))
    assert bursts[0][0] == 10
    assert spans[-1].end == 10 + 4 * burst_duration(machine)


def test_bursts_of_a_broken_cycle_wait_for_the_next_whole_one() -> None:
    odd = replace(C1060, memory_data_rate_mhz=1200)
    bursts = stage(consecutive_reads(odd, 2), Stage.DATA_BURST)
    assert bursts == [(10, 10 + Fraction(4, 3)), (12, 12 + Fraction(4, 3))]


@pytest.mark.parametrize(
    "timeline",
    [read_cycle, lambda m: pipelined_reads(m, 1), lambda m: consecutive_reads(m, 1), burst_beats],
)
def test_a_machine_without_banks_is_refused(timeline: Callable[[Machine], object]) -> None:
    with pytest.raises(MachineError, match="banks is missing"):
        timeline(replace(C1060, banks=None))


@pytest.mark.parametrize(
    ("timeline", "reads", "said"),
    [
        (pipelined_reads, 0, "1 to 8, not 0"),
        (pipelined_reads, 9, "1 to 8, not 9"),
        (consecutive_reads, 0, "at least 1"),
    ],
)
def test_there_is_a_read_and_at_most_one_for_each_bank(
    timeline: Callable[[Machine, int], object], reads: int, said: str
) -> None:
    with pytest.raises(MachineError, match=said):
        timeline(C1060, reads)
