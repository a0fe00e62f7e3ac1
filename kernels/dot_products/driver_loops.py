"""Loops over the pieces of host data, with calls of the CUDA driver, that Numba compiles once.

In Python the eight calls for a stream take 10 to 20 µs, in a host program a tenth of that. The
driver's functions come as addresses, so that Numba keeps the compiled loops for later processes.
The module imports Numba, so it is itself imported only where a loop runs.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_ALL_ONES = 0xFF
_unpacked: Any = cgutils.unpack_tuple
_WORD, _INT, _BYTE = types.uint64, types.uint32, types.uint8


def _function(*parameters: Any) -> Any:
    """A call of a C function with these parameters, which returns an int.

    The compiled code calls it with the function's address and a tuple of arguments.
    """

    @intrinsic
    def call(_: Any, address: Any, arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds = [context.get_value_type(kind) for kind in parameters]
            of_function = ir.FunctionType(ir.IntType(32), kinds).as_pointer()
            function = builder.inttoptr(values[0], of_function)
            given = _unpacked(builder, values[1])
            passed = [
                context.cast(builder, value, kind, wanted)
                for value, kind, wanted in zip(
                    given, signature.args[1].types, parameters, strict=True
                )
            ]
            return builder.call(function, passed)

        return types.int32(address, arguments), generate

    return call


# The driver's functions that the loops call, by their place in the array of addresses.
CALLS = (
    "cuStreamCreate",
    "cuStreamSynchronize",
    "cuStreamDestroy_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemsetD8Async",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoH_v2",
    "cuLaunchKernel",
)
CREATE, WAIT, DESTROY, RESERVE, GIVE_BACK, ALLOCATE, FREE, FILL, COPY, FETCH, LAUNCH = range(11)
# Handles, addresses and sizes are 64-bit words.
_one_word, _word_and_int = _function(_WORD), _function(_WORD, _INT)
_two_words, _three_words = _function(_WORD, _WORD), _function(_WORD, _WORD, _WORD)
_four_words, _fill = _function(*(_WORD,) * 4), _function(_WORD, _BYTE, _WORD, _WORD)
_launch = _function(_WORD, *(_INT,) * 7, _WORD, _WORD, _WORD)


@njit(cache=True)
def feed(
    calls: Any, pieces: Any, streams: Any, room: Any, partial_bytes: int, poisoned: bool
) -> Any:
    """Queue all pieces, each on a stream of its own; return the driver's first error, or 0.

    `calls` are the addresses of CALLS, `pieces` are those of `driver_in_turn.pieces_of`. `room`
    gets the device addresses of a piece's inputs and, last, of all partial results.
    """
    sources, nbytes, functions, geometry, values, addresses, slots = pieces
    code = _two_words(calls[RESERVE], (room[-1:].ctypes.data, max(4, partial_bytes)))
    if code == 0 and poisoned:
        # The default stream, for which the pieces' streams wait.
        code = _fill(calls[FILL], (room[-1], _ALL_ONES, partial_bytes, 0))
    for p in range(functions.size):
        if code != 0:
            break
        code = _word_and_int(calls[CREATE], (streams[p:].ctypes.data, 0))
        held = 0
        for i in range(sources.shape[1]):
            if code == 0:
                target = room[i:].ctypes.data
                code = _three_words(calls[ALLOCATE], (target, nbytes[p, i], streams[p]))
                held += code == 0
        for i in range(sources.shape[1]):
            if code == 0 and poisoned:
                code = _fill(calls[FILL], (room[i], _ALL_ONES, nbytes[p, i], streams[p]))
            if code == 0:
                copied = room[i], sources[p, i], nbytes[p, i], streams[p]
                code = _four_words(calls[COPY], copied)
        for k in range(slots.shape[0]):
            values[p, slots[k, 0]] = room[slots[k, 1]]
        if code == 0:
            g = geometry[p]
            launched = (
                functions[p], g[0], g[1], g[2], g[3], g[4], g[5], g[6],
                streams[p], addresses[p].ctypes.data, 0,
            )  # fmt: skip
            code = _launch(calls[LAUNCH], launched)
        for i in range(held):
            freed = _two_words(calls[FREE], (room[i], streams[p]))
            code = freed if code == 0 else code
    return code


@njit(cache=True)
def drain(calls: Any, streams: Any, room: Any, target: int, partial_bytes: int) -> Any:
    """Wait for all streams, and end them; return the driver's first error, or 0.

    Partial results are copied to the host's `target` unless that is 0.
    """
    code = 0
    for p in range(streams.size):
        if streams[p] != 0:
            waited = _one_word(calls[WAIT], (streams[p],))
            destroyed = _one_word(calls[DESTROY], (streams[p],))
            streams[p] = 0
            code = code if code != 0 else waited if waited != 0 else destroyed
    if code == 0 and target != 0:
        code = _three_words(calls[FETCH], (target, room[-1], partial_bytes))
    if room[-1] != 0:
        freed = _one_word(calls[GIVE_BACK], (room[-1],))
        room[-1] = 0
        code = code if code != 0 else freed
    return code
