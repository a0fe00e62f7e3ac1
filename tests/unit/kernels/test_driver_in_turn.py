"""Pieces in turn on CUDA: the compiled loop, by a driver whose memory is the host's."""

import contextlib
import ctypes
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dot_products import driver_in_turn
from gpushmoo.workloads.contract import BufferRef, Launch
from gpushmoo.workloads.host_fed import FedInTurn, Piece

N, STREAMS = 12, 3


WORD, INT = ctypes.c_uint64, ctypes.c_uint32
# As the driver declares them.
PARAMETERS = {
    "cuStreamCreate": (WORD, INT),
    "cuStreamSynchronize": (WORD,),
    "cuStreamDestroy_v2": (WORD,),
    "cuMemAlloc_v2": (WORD, WORD),
    "cuMemFree_v2": (WORD,),
    "cuMemAllocAsync": (WORD, WORD, WORD),
    "cuMemFreeAsync": (WORD, WORD),
    "cuMemsetD8Async": (WORD, ctypes.c_uint8, WORD, WORD),
    "cuMemcpyHtoDAsync_v2": (WORD, WORD, WORD, WORD),
    "cuMemcpyDtoH_v2": (WORD, WORD, WORD),
    "cuLaunchKernel": (WORD, *(INT,) * 7, WORD, WORD, WORD),
}


class DriverError(Exception):
    """Stand in for CuPy's CUDADriverError."""


class HostDriver:
    """The driver's calls on host memory; call number `fails` of `failing` gives error 2."""

    def __init__(self, failing: str = "", fails: int = 0) -> None:
        self.calls: list[str] = []
        self.memory: dict[int, Any] = {}
        self.poisoned: list[int] = []
        actions: dict[str, Callable[..., None]] = {
            "cuStreamCreate": self._create,
            "cuMemAlloc_v2": self._allocate,
            "cuMemFree_v2": self._free,
            "cuMemAllocAsync": self._allocate,
            "cuMemFreeAsync": self._free,
            "cuMemsetD8Async": self._fill,
            "cuMemcpyHtoDAsync_v2": self._copy,
            "cuMemcpyDtoH_v2": self._copy_back,
            "cuLaunchKernel": self._launch,
        }
        for name, argument_types in PARAMETERS.items():
            act = actions.get(name, lambda *_: None)

            def call(*args: int, name: str = name, act: Callable[..., None] = act) -> int:
                self.calls.append(name)
                if name == failing and self.calls.count(name) == fails:
                    return 2
                act(*args)
                return 0

            setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *argument_types)(call))

    def count(self, name: str) -> int:
        return self.calls.count(name)

    def _create(self, at: int, flags: int) -> None:
        ctypes.c_uint64.from_address(at).value = 1000 + len(self.calls)

    def _allocate(self, at: int, nbytes: int, *stream: int) -> None:
        array = np.zeros(nbytes, np.uint8)
        self.memory[array.ctypes.data] = array
        ctypes.c_uint64.from_address(at).value = array.ctypes.data

    def _free(self, address: int, *stream: int) -> None:
        del self.memory[address]

    def _fill(self, address: int, value: int, nbytes: int, stream: int) -> None:
        ctypes.memset(address, value, nbytes)
        self.poisoned.append(nbytes)

    def _copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def _copy_back(self, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def _launch(self, function: int, *rest: int) -> None:
        *geometry, _, arguments, extra = rest
        assert (function, geometry, extra) == (7, [1, 1, 1, 32, 1, 1, 0], 0)
        at = (ctypes.c_uint64 * 5).from_address(arguments)
        x, y, partials, n, place = (ctypes.c_uint64.from_address(a).value for a in at)
        doubles = [np.frombuffer((ctypes.c_double * n).from_address(a)) for a in (x, y)]
        ctypes.c_double.from_address(partials + 8 * place).value = doubles[0] @ doubles[1]


def in_turn(driver: HostDriver, poisoned: bool = False) -> tuple[driver_in_turn.DriverInTurn, Any]:
    """A dot product of N elements by STREAMS streams, and where its partial sums go."""
    share = N // STREAMS
    pieces = []
    for i in range(STREAMS):
        buffers = (BufferRef("x"), BufferRef("y"), BufferRef("partials"))
        args = (*buffers, np.uint64(share), np.uint64(i))
        launch = Launch("dot", (1, 1, 1), (32, 1, 1), args, tiles=1)
        pieces.append(Piece(i, i * share, (i + 1) * share, launch))
    arrays = {"x": np.arange(N, dtype=float), "y": np.arange(N, dtype=float) + 0.5}
    partials = np.zeros(STREAMS)
    errors = types.SimpleNamespace(CUDADriverError=DriverError)
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(driver=errors))
    kernel = types.SimpleNamespace(kernel=types.SimpleNamespace(ptr=7))
    fed = FedInTurn(None, pieces, arrays, partials, poisoned)
    calls = driver_in_turn.driver_calls(driver)
    bound = driver_in_turn.DriverInTurn(cupy, contextlib.nullcontext, lambda *_: kernel, fed, calls)
    return bound, partials


def test_loops_are_compiled_before_the_first_launch_and_kept() -> None:
    """A first launch that compiles for a second looks like one that does not end."""
    driver = HostDriver()
    bound, _ = in_turn(driver)
    loops: Any = (bound._feed, bound._drain)
    before = [list(loop.signatures) for loop in loops]
    assert all(before)
    assert driver.calls == []
    bound.run(lambda: None)
    assert [list(loop.signatures) for loop in loops] == before
    for loop in loops:
        assert loop.stats.cache_hits or loop.stats.cache_misses


@pytest.mark.parametrize("poisoned", [False, True])
def test_each_piece_goes_through_a_stream_of_its_own(poisoned: bool) -> None:
    driver = HostDriver()
    bound, partials = in_turn(driver, poisoned)
    for _ in range(2):
        assert bound.run(lambda: "meanwhile") == "meanwhile"
    x = np.arange(N).reshape(STREAMS, -1)
    assert partials.tolist() == (x * (x + 0.5)).sum(axis=1).tolist()
    assert driver.count("cuStreamDestroy_v2") == driver.count("cuStreamCreate") == 2 * STREAMS
    assert driver.poisoned == ([24, *[32] * 2 * STREAMS] * 2 if poisoned else [])
    assert driver.memory == {}
    # A stream is fed and its memory given back before the next is made.
    feeding = ["cuMemAllocAsync"] * 2 + ["cuMemcpyHtoDAsync_v2"] * 2
    if not poisoned:
        once = ["cuStreamCreate", *feeding, "cuLaunchKernel", *["cuMemFreeAsync"] * 2]
        assert driver.calls[: len(once) * STREAMS + 1] == ["cuMemAlloc_v2", *once * STREAMS]


@pytest.mark.parametrize(
    ("failing", "fails"),
    [
        ("cuMemAlloc_v2", 1),
        ("cuMemAllocAsync", 4),
        ("cuLaunchKernel", 3),
        ("cuStreamSynchronize", 2),
        ("cuMemcpyDtoH_v2", 1),
        ("cuMemFreeAsync", 1),
    ],
)
def test_a_failure_is_raised_and_nothing_is_kept(failing: str, fails: int) -> None:
    driver = HostDriver(failing, fails)
    with pytest.raises(DriverError, match="2"):
        in_turn(driver)[0].run(lambda: None)
    assert driver.count("cuStreamDestroy_v2") == driver.count("cuStreamCreate")
    assert len(driver.memory) == (failing == "cuMemFreeAsync")
