"""The memory of the study: coalescing, partitions of tiles, blocks on SMs, reads of one device."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from tesla_c1060.memory import (
    Stage,
    StageSpan,
    Transaction,
    assign_blocks,
    burst_duration,
    compiled_loads,
    consecutive_reads,
    critical_sms,
    partitions_by_step,
    pipelined_reads,
    read_cycle,
    transactions,
    whole_accesses,
)
from tesla_c1060.simulation.machine import Tiling, read_cycle_cycles
from test_machine import C1060


def places(issued: Sequence[Transaction]) -> list[tuple[int, int]]:
    return [(t.address, t.n_bytes) for t in issued]


@pytest.mark.parametrize(
    ("addresses", "word", "expected"),
    [
        (range(0, 64, 4), 4, [(0, 64)]),
        (range(0, 128, 8), 8, [(0, 128)]),
        (range(0, 256, 16), 16, [(0, 128), (128, 128)]),
        # The guide's examples: shifted by a word, and across a segment's end.
        (range(4, 68, 4), 4, [(0, 128)]),
        (range(96, 160, 4), 4, [(96, 32), (128, 32)]),
        (range(68, 132, 4), 4, [(64, 64), (128, 32)]),
        ([40] * 16, 4, [(32, 32)]),
        ([200, 0], 4, [(192, 32), (0, 32)]),
    ],
)
def test_known_patterns(
    addresses: Sequence[int], word: int, expected: list[tuple[int, int]]
) -> None:
    assert places(transactions(list(addresses), word)) == expected


def test_float3_as_the_document_counts_it_and_as_it_is_compiled() -> None:
    assert places(whole_accesses(12)) == [(0, 128), (128, 64)]
    loads = compiled_loads(12)
    assert [places(load.transactions) for load in loads] == [[(0, 128), (128, 64)]] * 3
    assert sum(t.n_bytes for load in loads for t in load.transactions) == 576
    assert compiled_loads(16)[0].transactions == whole_accesses(16)
    # Words are as long as the alignment.
    words = {
        size: [load.word_bytes for load in compiled_loads(size)] for size in (4, 8, 12, 16, 24)
    }
    assert words == {4: [4], 8: [8], 12: [4] * 3, 16: [16], 24: [8] * 3}


SEVEN = replace(C1060, partitions=7, bus_bytes=56)
DOUBLES = Tiling.partition_wide(C1060, 256, 8)


@pytest.mark.parametrize("blocks", [1, 2, 4, 8])
def test_partitions_in_use_at_once(blocks: int) -> None:
    used = partitions_by_step(C1060, DOUBLES, blocks)
    assert [len(partitions) for partitions in used] == [blocks] * (128 // blocks)
    # 8 stretches of a row do not come round with 7 partitions: each tile is in all of them.
    assert {len(p) for p in partitions_by_step(SEVEN, DOUBLES, blocks)} == {7}


@pytest.mark.parametrize(("blocks", "tiles", "sms"), [(32, 8, 2), (30, 5, 8), (16, 8, 16)])
def test_critical_paths_of_the_document(blocks: int, tiles: int, sms: int) -> None:
    loads = assign_blocks(C1060, DOUBLES, blocks)
    critical = critical_sms(loads)
    assert [(load.sm, load.n_tiles) for load in critical] == [(n, tiles) for n in range(sms)]
    if blocks == 32:
        assert loads[0].blocks == (0, 30)
        assert loads[0].tiles == ((0, 32, 64, 96), (30, 62, 94, 126))


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
    assert burst_duration(machine) == burst_bytes / 16
    assert spans[-1].end == 10 + 4 * burst_duration(machine)
