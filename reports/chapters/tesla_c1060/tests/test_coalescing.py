"""Coalescing by the rule of compute capability 1.2 and 1.3."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tesla_c1060.memory import Transaction, compiled_loads, transactions, whole_accesses


def spans(issued: Sequence[Transaction]) -> list[tuple[int, int]]:
    return [(t.address, t.n_bytes) for t in issued]


@st.composite
def accesses(draw: st.DrawFn) -> tuple[list[int], int]:
    """Addresses of 1 to 16 threads, near each other or far apart, and the word size."""
    word = draw(st.sampled_from([4, 8, 16]))
    furthest = draw(st.sampled_from([8, 64, 4096]))
    words = draw(st.lists(st.integers(0, furthest), min_size=1, max_size=16))
    return [w * word for w in words], word


@given(accesses())
def test_every_thread_is_served_once_by_a_transaction_that_holds_its_word(
    access: tuple[list[int], int],
) -> None:
    addresses, word = access
    issued = transactions(addresses, word)
    assert sorted(t for one in issued for t in one.threads) == list(range(len(addresses)))
    for one in issued:
        for thread in one.threads:
            assert one.address <= addresses[thread]
            assert addresses[thread] + word <= one.address + one.n_bytes


@given(accesses())
def test_transactions_are_aligned_and_none_could_be_half_as_long(
    access: tuple[list[int], int],
) -> None:
    addresses, word = access
    for one in transactions(addresses, word):
        assert one.n_bytes in (32, 64, 128)
        assert one.address % one.n_bytes == 0
        half = one.address + one.n_bytes // 2
        halves = {addresses[t] < half for t in one.threads}
        assert one.n_bytes == 32 or halves == {True, False}


@given(accesses())
def test_transactions_go_by_the_lowest_thread_and_by_different_segments(
    access: tuple[list[int], int],
) -> None:
    issued = transactions(*access)
    lowest = [min(one.threads) for one in issued]
    assert lowest == sorted(lowest)
    assert len({one.address // 128 for one in issued}) == len(issued)


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
    assert spans(transactions(list(addresses), word)) == expected


@pytest.mark.parametrize(
    ("addresses", "word", "complaint"),
    [
        ([], 4, "at least one address"),
        ([0], 12, "4, 8 or 16 bytes, not 12"),
        ([0, 2], 4, "address 2 of thread 1"),
        ([-4], 4, "address -4 of thread 0"),
    ],
)
def test_impossible_accesses_are_refused(addresses: list[int], word: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        transactions(addresses, word)


def test_float3_as_the_document_counts_it_and_as_it_is_compiled() -> None:
    issued = whole_accesses(12)
    assert spans(issued) == [(0, 128), (128, 64)]
    # Thread 10 reads bytes 120 to 131, of both.
    assert issued[0].threads == tuple(range(11))
    assert issued[1].threads == tuple(range(10, 16))
    loads = compiled_loads(12)
    assert [spans(load.transactions) for load in loads] == [[(0, 128), (128, 64)]] * 3
    assert sum(t.n_bytes for load in loads for t in load.transactions) == 576


@pytest.mark.parametrize(
    ("itemsize", "words"), [(4, [4]), (8, [8]), (12, [4] * 3), (16, [16]), (24, [8] * 3)]
)
def test_words_are_as_long_as_the_alignment(itemsize: int, words: list[int]) -> None:
    assert [load.word_bytes for load in compiled_loads(itemsize)] == words


@given(st.sampled_from([4, 8, 16]), st.integers(0, 40), st.integers(1, 16))
def test_elements_that_are_words_are_the_same_either_way(
    itemsize: int, offset: int, threads: int
) -> None:
    first = offset * itemsize
    (load,) = compiled_loads(itemsize, first, threads)
    assert load.transactions == whole_accesses(itemsize, first, threads)


@pytest.mark.parametrize("itemsize", [-4, 0, 2, 6])
def test_elements_that_are_no_words_are_refused(itemsize: int) -> None:
    with pytest.raises(ValueError, match="multiple of 4"):
        compiled_loads(itemsize)


@pytest.mark.parametrize(("itemsize", "first", "threads"), [(0, 0, 16), (4, -1, 16), (4, 0, 0)])
def test_empty_accesses_are_refused(itemsize: int, first: int, threads: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        whole_accesses(itemsize, first, threads)
