"""Host data in pieces: nothing is left out, taken twice, or taken by a stream without work."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from conftest import ROOT
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import BufferRef, Launch
from gpushmoo.workloads.host_fed import HostFedWorkload, Piece, Pipeline, cuts, share_of_host
from gpushmoo.workloads.loader import load_kernel
from hypothesis import given
from hypothesis import strategies as st

# Chunks that cut a problem into so many pieces at most, so that an example takes milliseconds.
MAX_PIECES = 2000


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Elements, streams, fewest elements of a stream, chunk."""
    n = draw(st.integers(0, 10**6) | st.integers(0, 300))
    least = max(1, n // MAX_PIECES)
    chunk = draw(st.just(0) | st.integers(least, 2 * n + 2) | st.integers(least, least + 8))
    fewest = draw(st.integers(0, 8) | st.integers(0, 2 * n + 2))
    return n, draw(st.integers(1, 64)), fewest, chunk


def by_stream(found: Sequence[Piece]) -> dict[int, list[Piece]]:
    streams: dict[int, list[Piece]] = {}
    for piece in found:
        streams.setdefault(piece.stream, []).append(piece)
    return streams


def covered(found: Sequence[Piece]) -> list[tuple[int, int]]:
    """The ranges in ascending order, joined where one follows the other without a gap."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted((p.begin, p.end) for p in found):
        if joined and joined[-1][1] == begin:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


@given(asked=requests())
def test_every_element_is_in_one_piece(asked: tuple[int, int, int, int]) -> None:
    n, streams, fewest, chunk = asked
    found = cuts(*asked)
    assert all(c.begin < c.end for c in found)
    # Joined ranges that overlapped would stay apart.
    assert covered(found) == ([(0, n)] if n else [])
    if chunk:
        assert max((c.end - c.begin for c in found), default=0) <= chunk
    lanes = by_stream(found)
    assert sorted(lanes) == list(range(len(lanes)))
    assert len(lanes) <= streams
    # The first piece of every stream comes before any second.
    assert [c.stream for c in found[: len(lanes)]] == list(range(len(lanes)))
    for lane in lanes.values():
        assert all(a.end == b.begin for a, b in itertools.pairwise(lane))
        # Only the last piece of a stream may be short.
        assert len({c.end - c.begin for c in lane[:-1]}) <= 1
    shares = [lane[-1].end - lane[0].begin for lane in lanes.values()]
    if shares:
        assert max(shares) - min(shares) <= 1
        assert len(shares) == 1 or min(shares) >= fewest
    # No more streams would do.
    if len(shares) < min(streams, n):
        assert (len(shares) + 1) * fewest > n


@given(n=st.integers(0, 10**9), percent=st.integers(0, 100))
def test_share_of_the_host_is_its_percentage_to_half_an_element(n: int, percent: int) -> None:
    share = share_of_host(n, percent)
    assert 0 <= share <= n
    assert abs(100 * share - n * percent) <= 50
    assert percent == 100 or share_of_host(n, percent + 1) >= share
    assert (share_of_host(n, 0), share_of_host(n, 100)) == (0, n)


def pipeline_of(*pieces: tuple[int, int, int], streams: int) -> Pipeline:
    return Pipeline(streams, tuple(Piece(*p, None) for p in pieces), 0, 0, 0, True, True)


def test_room_of_a_stream_is_its_longest_piece() -> None:
    pieces = [(0, 0, 4), (2, 4, 9), (0, 9, 10), (2, 10, 11)]
    assert pipeline_of(*pieces, streams=4).packages() == (4, 0, 5, 0)
    # A stream without pieces needs no room, and no stream.
    assert pipeline_of(streams=1).packages() == ()


def dot() -> HostFedWorkload:
    workload = load_kernel(ROOT / "kernels/dot_streamed").workload
    assert isinstance(workload, HostFedWorkload)
    return workload


DOT = dot()


def cell(n: int, variant: str = "pinned-pooled", **params: int) -> Cell:
    defaults = {
        "streams": 4,
        "min_per_stream": 1,
        "blocks_per_stream": 32,
        "threads": 64,
        "chunk": 0,
        "host_percent": 0,
    }
    given = tuple(sorted({**defaults, **params}.items()))
    return Cell(DOT.name, "float", variant, Problem(1, n), given)


def launch_of(piece: Piece) -> Launch:
    assert piece.launch is not None
    return piece.launch


@given(
    asked=requests(),
    blocks=st.integers(1, 40),
    threads=st.sampled_from([1, 33, 96, 1000, 1024]),
    percent=st.integers(0, 100),
)
def test_every_element_is_the_hosts_or_in_one_piece_and_every_block_has_a_partial_of_its_own(
    asked: tuple[int, int, int, int], blocks: int, threads: int, percent: int
) -> None:
    n, streams, fewest, chunk = asked
    mine = cell(
        n,
        streams=streams,
        min_per_stream=fewest,
        chunk=chunk,
        blocks_per_stream=blocks,
        threads=threads,
        host_percent=percent,
    )
    found = DOT.pipeline(mine)
    here = n - share_of_host(n, percent)
    assert (found.host_begin, found.host_end) == (here, n)
    assert covered(found.pieces) == ([(0, here)] if here else [])
    assert all(0 <= p.stream < found.streams for p in found.pieces)
    first = 0
    for piece in found.pieces:
        launch = launch_of(piece)
        assert launch.entry == "dot_piece"
        assert launch.block == (threads, 1, 1)
        assert launch.grid[1:] == (1, 1)
        assert 1 <= launch.blocks <= blocks
        # The kernel is told its elements and where its partial results begin.
        x, y, partials, size, offset = launch.args
        assert (x, y, partials) == (BufferRef("x"), BufferRef("y"), BufferRef("partials"))
        assert (size, offset) == (np.uint64(piece.end - piece.begin), np.uint64(first))
        # No block is without a group of four elements, unless there is but one.
        assert launch.blocks == 1 or (launch.blocks - 1) * threads * 4 < piece.end - piece.begin
        first += launch.blocks
    assert found.partials == first
    # The cell's own launch is that of a piece that is long enough for all its blocks.
    told = DOT.launch(mine)
    assert (told.entry, told.grid, told.block) == ("dot_piece", (blocks, 1, 1), (threads, 1, 1))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_fewer_than_four_elements_are_launched_and_none_are_not(n: int) -> None:
    """The published code counts groups of four and launches nothing for them."""
    (piece,) = DOT.pipeline(cell(n, streams=1)).pieces
    assert launch_of(piece).blocks == 1
    nothing = DOT.pipeline(cell(0))
    assert (nothing.pieces, nothing.partials, nothing.packages()) == ((), 0, ())
