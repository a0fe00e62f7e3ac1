"""The host's share of a dot product: every element once, whatever the blocks and the cores."""

import itertools
import os

import numpy as np
import numpy.typing as npt
import pytest
from bench import told
from conftest import ROOT
from dot_products.host_dot import BLOCK, SHARED, host_dot, host_dot_depth
from gpushmoo.core.space import Problem, enumerate_cells
from gpushmoo.devices.base import Device
from gpushmoo.measuring import rounds
from gpushmoo.measuring.events import CellsStarted
from gpushmoo.workloads.loader import load_kernel
from jobs import ended_runs

CORES = len(os.sched_getaffinity(0))
AROUND = {size + step for size in (BLOCK, 2 * BLOCK, SHARED, 2 * SHARED) for step in (-1, 0, 1)}
SIZES = sorted({0, 1, 2, 3, 1000, 3 * CORES * SHARED + 5, *AROUND})


def integers(n: int, dtype: npt.DTypeLike) -> tuple[npt.NDArray[np.floating], int]:
    """An array whose products with itself, and the sums of a block of them, are exact in floats."""
    x = 1 + np.arange(n) % 13
    return x.astype(dtype), int((x * x).sum())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", SIZES)
def test_sum_of_small_integers_is_exact(n: int, dtype: npt.DTypeLike) -> None:
    x, expected = integers(n, dtype)
    assert host_dot(x, x) == expected


@pytest.mark.parametrize("cores", [1, 2, 3, 7])
@pytest.mark.parametrize("extra", [-1, 0, 1, BLOCK + 1])
def test_cores_share_elements(monkeypatch: pytest.MonkeyPatch, cores: int, extra: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    x, expected = integers(SHARED + cores * BLOCK + extra, np.float32)
    assert host_dot(x, x) == expected


@pytest.mark.parametrize("blocks", [1, 4 * SHARED // BLOCK + 1])
def test_blocks_are_added_in_double(blocks: int) -> None:
    """A block's sum is just below 2^24: two of them are no floats any more."""
    x = np.full(blocks * BLOCK, 63, np.float32)
    y = np.full(blocks * BLOCK, 65, np.float32)
    x[::BLOCK] = 62
    expected = blocks * (4095 * BLOCK - 65)
    assert blocks == 1 or float(np.float32(expected)) != expected
    assert host_dot(x, y) == expected


@pytest.mark.parametrize("place", [0, BLOCK - 1, BLOCK, 2 * SHARED])
def test_nan_is_seen_wherever_it_is(place: int) -> None:
    x = np.ones(2 * SHARED + 1, np.float32)
    x[place] = np.nan
    assert np.isnan(host_dot(x, np.ones_like(x)))


@pytest.mark.parametrize("n", [0, 1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 7 * BLOCK + 3])
def test_depth_bounds_what_rounds(n: int) -> None:
    """Of products that all round alike: as many halves of a unit are lost as the order can lose."""
    rounded_up = np.float32(1 + 2**-23)
    x = np.full(n, rounded_up)
    exact = n * float(rounded_up) ** 2
    assert abs(host_dot(x, x) - exact) <= host_dot_depth(n) * 2.0**-24 * exact * 1.001
    assert (host_dot_depth(n) == 0) == (n == 0)
    assert host_dot_depth(n) <= BLOCK + n // BLOCK + 1


def test_the_host_takes_no_turns(opencl_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of one would still spin while the next is timed."""
    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)
    folder = load_kernel(ROOT / "kernels/dot_host")
    variants = folder.workload.variants
    cells = enumerate_cells(folder.name, "double", variants, [Problem(1, 0), Problem(1, 1003)], {})
    events = told(opencl_device, folder, cells, None)
    ended = ended_runs(events)
    assert {(r.cell.key, r.status, len(r.samples_s)) for r in ended} == {
        (c.key, "ok", 6) for c in cells
    }
    begun = [key for e in events if isinstance(e, CellsStarted) for key in e.keys]
    in_turn = [key for key, _ in itertools.groupby(begun)]
    assert sorted(in_turn) == sorted(c.key for c in cells)
