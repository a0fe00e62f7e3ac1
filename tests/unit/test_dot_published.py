"""The printed loop of the third document: its formulas, its order of calls, its results."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from conftest import ROOT
from covering import edited, integers
from dot_products.workloads import StreamedDot
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import LaunchRefusedError
from gpushmoo.core.space import Cell, Problem
from gpushmoo.devices.base import Device
from gpushmoo.measuring.buffers import FedSpace
from gpushmoo.workloads.contract import Launch
from gpushmoo.workloads.loader import load_kernel
from hypothesis import given
from hypothesis import strategies as st
from test_host_pipeline import Bench, does_nothing

FOLDERS = {name: load_kernel(ROOT / "kernels" / name) for name in ("dot_streamed", "dot_square")}
# The document's own parameters.
PRINTED = {"streams": 64, "min_per_stream": 1 << 12, "blocks_per_stream": 32, "threads": 1024}
# Fewer, so that a few thousand elements use all of them.
SMALL = {"streams": 4, "min_per_stream": 64, "blocks_per_stream": 2, "threads": 16}


def workload(name: str = "dot_streamed") -> StreamedDot:
    found = FOLDERS[name].workload
    assert isinstance(found, StreamedDot)
    return found


def cell(n: int, kernel: str = "dot_streamed", dtype: str = "float", **params: int) -> Cell:
    every = {**PRINTED, "chunk": 0, "host_percent": 0, **params}
    return Cell(kernel, dtype, "published", Problem(1, n), tuple(sorted(every.items())))


@given(
    n=st.integers(4, 2**28) | st.integers(4, 5000),
    streams=st.integers(1, 64),
    least=st.integers(1, 1 << 14),
    blocks=st.sampled_from([1, 4, 32]),
    threads=st.sampled_from([32, 256, 1024]),
)
def test_sizes_are_those_of_the_printed_formulas(
    n: int, streams: int, least: int, blocks: int, threads: int
) -> None:
    """Transcribed from the listing, integer divisions and all."""
    n_power_of_two = 1 << int(np.floor(np.log2(n)))
    no_clamp = (n_power_of_two + least - 1) // least
    streams_needed = no_clamp if no_clamp < streams else streams
    n_per_stream = 1 << int(np.floor(np.log2(n_power_of_two // streams_needed)))
    vectorized = n_per_stream // 4
    wanted = (vectorized + threads - 1) // threads
    blocks_used = wanted if wanted < blocks else blocks
    axes = {"streams": streams, "min_per_stream": least}
    of = cell(n, **axes, blocks_per_stream=blocks, threads=threads)
    if blocks_used == 0:
        with pytest.raises(LaunchRefusedError, match="launches no block for fewer than 4"):
            workload().pipeline(of)
        return
    found = workload().pipeline(of)
    ranges = [(i * n_per_stream, (i + 1) * n_per_stream) for i in range(streams_needed)]
    assert [(p.begin, p.end) for p in found.pieces] == ranges
    assert [p.stream for p in found.pieces] == [*range(streams_needed)]
    launches = [cast(Launch, p.launch) for p in found.pieces]
    assert {(launch.grid, launch.block) for launch in launches} == {
        ((blocks_used, 1, 1), (threads, 1, 1))
    }
    firsts = [int(cast(Any, launch.args[-1])) for launch in launches]
    assert firsts == [i * blocks_used for i in range(streams_needed)]
    assert found.partials == 4 * streams_needed * blocks_used
    assert (found.host_begin, found.host_end) == (n_per_stream * streams_needed, n)


def test_parameters_of_the_document_give_64_streams_from_a_quarter_million_elements_on() -> None:
    lengths = {n: workload().pipeline(cell(n)).streams for n in (2**12, 2**17, 2**18, 2**27)}
    assert lengths == {2**12: 1, 2**17: 32, 2**18: 64, 2**27: 64}
    nothing = workload().pipeline(cell(0))
    assert (nothing.pieces, nothing.host_end) == ((), 0)


@pytest.mark.parametrize(
    ("n", "params", "message"),
    [
        (3, {}, "2 elements a stream; the printed program launches no block for fewer than 4."),
        (4096, {"chunk": 8}, "chunk is 8; the printed program has none."),
        (4096, {"host_percent": 20}, "host_percent is 20; the printed program has none."),
        (4096, {"threads": 96}, "96 threads a block; the printed program takes powers of two."),
    ],
)
def test_what_the_printed_program_cannot_is_refused(
    n: int, params: dict[str, int], message: str
) -> None:
    with pytest.raises(LaunchRefusedError) as caught:
        workload().pipeline(cell(n, **params))
    assert str(caught.value) == message


def test_each_stream_is_made_fed_and_given_back_before_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The order of the listing: the host computes its rest before anything is waited for."""
    bench = Bench()
    monkeypatch.setattr(
        "test_host_pipeline.FakeStream.release", lambda self: self.ask("release"), raising=True
    )
    plan = workload().pipeline(cell(20, streams=2, min_per_stream=8, threads=4))
    feed = bench.feed(plan, does_nothing)
    bench.device.log.clear()
    feed.run()
    one = [("allocate", 32), ("allocate", 32), ("copy_in", 8), ("copy_in", 8)]
    asked = [(name, *rest[1:]) for name, *rest in bench.device.log if name not in ("open", "host")]
    assert asked[:2] == [("allocate", 4 * 4 * 2), ("wait",)]
    assert asked[2:14] == [
        *one,
        ("launch", 8, 0),
        ("release",),
        *one,
        ("launch", 8, 1),
        ("release",),
    ]
    names = [name for name, *_ in bench.device.log]
    assert names.index("host") > names.index("release")
    assert "wait" not in names[names.index("release") : names.index("host")]
    assert ("host", 4) in bench.device.log


@pytest.mark.parametrize("kernel", sorted(FOLDERS))
@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize("n", [4, 5, 64, 1000, 4095, 4096, 65537])
def test_every_length_is_right(device: Device, kernel: str, dtype: str, n: int) -> None:
    data = {name: integers(n, dtype)[name] for name in workload(kernel).operands}
    space = FedSpace(device, workload(kernel), data)
    program = device.build(FOLDERS[kernel].path, DTYPES[dtype], {})
    x, y = (data[name] for name in (workload(kernel).operands[0], workload(kernel).operands[-1]))
    for params in (SMALL, SMALL | {"streams": 3, "threads": 64}, SMALL | {"streams": 1}):
        of = cell(n, kernel, dtype, **params)
        proof = space.bind_proof(program, of)
        for _ in range(2):
            proof.run()
            assert proof.value == float(np.dot(x.astype(float), y.astype(float))), of
        assert space.verdict(of, proof).message is None


EDITS = {
    "a vector": [("i < vectors;", "i < vectors - 1;")],
    "a block": [
        ("if (thread < 1)", "if (thread < 1 && get_group_id(0) != 1)"),
        ("if (threadIdx.x < 1)", "if (threadIdx.x < 1 && blockIdx.x != 1)"),
    ],
    "half a tree": [("width > 0;", "width > 1;")],
}


@pytest.mark.parametrize("what", EDITS)
def test_a_kernel_that_leaves_something_out_is_called_wrong(
    device: Device, tmp_path: Any, what: str
) -> None:
    folder = edited(FOLDERS["dot_streamed"], tmp_path, EDITS[what])
    program = device.build(folder.path, DTYPES["float"], {})
    rng = np.random.default_rng(1)
    inputs = workload().inputs(Problem(1, 4096), "float", rng)
    space = FedSpace(device, workload(), inputs)
    of = cell(4096, **SMALL)
    sound = space.bind_proof(device.build(FOLDERS["dot_streamed"].path, DTYPES["float"], {}), of)
    sound.run()
    assert space.verdict(of, sound).message is None
    proof = space.bind_proof(program, of)
    proof.run()
    assert "the bound of this order of summation" in str(space.verdict(of, proof).message)


def test_sums_are_added_one_after_another_in_their_own_type() -> None:
    """2^24 + 1 + 1 … stays 2^24 in float when the ones come singly."""
    partials = np.zeros((5, 4), np.float32)
    partials[0], partials[1:, 2] = [2.0**24, 0, 0, 0], 1.0
    assert workload().total(cell(64), partials.reshape(-1), 0.0) == 2.0**24
    assert workload().total(cell(64, dtype="double"), partials.reshape(-1).astype(float), 3.0) == (
        2.0**24 + 7
    )
