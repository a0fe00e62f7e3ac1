"""Coalescing of a half-warp's accesses on devices of compute capability 1.2 and 1.3.

The rule of the programming guide: of the 128-byte segment that holds the word of the lowest
numbered thread not yet served, all threads' words are served by one transaction, of the half or
quarter of the segment if that holds them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WORD_BYTES = (4, 8, 16)
SEGMENT_BYTES = 128
SHORTEST_BYTES = 32
HALF_WARP = 16


@dataclass(frozen=True)
class Transaction:
    """One transfer: `n_bytes` (32, 64 or 128) from `address`, a multiple of `n_bytes`.

    `threads` are the half-warp's threads with bytes in it, in ascending order.
    """

    address: int
    n_bytes: int
    threads: tuple[int, ...]


@dataclass(frozen=True)
class Load:
    """One load instruction of a half-warp: thread i reads `word_bytes` from `addresses[i]`."""

    word_bytes: int
    addresses: tuple[int, ...]
    transactions: tuple[Transaction, ...]


def transactions(addresses: Sequence[int], word_bytes: int) -> tuple[Transaction, ...]:
    """The transactions that serve one word of `word_bytes` at each thread's address.

    `addresses[i]` is the byte address of active thread i. Raises ValueError for no addresses, a
    word that is not of 4, 8 or 16 bytes, and addresses that are not multiples of the word.
    """
    if not addresses:
        raise ValueError("a half-warp needs at least one address.")
    if word_bytes not in WORD_BYTES:
        raise ValueError(f"a word has 4, 8 or 16 bytes, not {word_bytes}.")
    for thread, address in enumerate(addresses):
        if address < 0 or address % word_bytes:
            raise ValueError(
                f"address {address} of thread {thread} is no multiple of {word_bytes} bytes."
            )
    waiting = list(range(len(addresses)))
    issued = []
    while waiting:
        segment = addresses[waiting[0]] // SEGMENT_BYTES
        served = [t for t in waiting if addresses[t] // SEGMENT_BYTES == segment]
        waiting = [t for t in waiting if addresses[t] // SEGMENT_BYTES != segment]
        first = min(addresses[t] for t in served)
        last = max(addresses[t] for t in served) + word_bytes - 1
        issued.append(_shortest(first, last, served))
    return tuple(issued)


def whole_accesses(
    itemsize: int, first_byte: int = 0, threads: int = HALF_WARP
) -> tuple[Transaction, ...]:
    """Transactions if consecutive elements of any size were read by one access, as in the document.

    The access covers `threads` × `itemsize` bytes from `first_byte`; each 128-byte segment of them
    takes one transaction. A thread whose element lies across two segments is in both.
    """
    if itemsize < 1 or threads < 1 or first_byte < 0:
        raise ValueError(
            f"itemsize and threads must be at least 1 and first_byte at least 0, not {itemsize}, "
            f"{threads} and {first_byte}."
        )
    end = first_byte + threads * itemsize
    issued = []
    for segment in range(first_byte // SEGMENT_BYTES, (end - 1) // SEGMENT_BYTES + 1):
        first = max(first_byte, segment * SEGMENT_BYTES)
        last = min(end, (segment + 1) * SEGMENT_BYTES) - 1
        touching = range((first - first_byte) // itemsize, (last - first_byte) // itemsize + 1)
        issued.append(_shortest(first, last, list(touching)))
    return tuple(issued)


def compiled_loads(
    itemsize: int, first_byte: int = 0, threads: int = HALF_WARP
) -> tuple[Load, ...]:
    """The loads that a compiler emits for consecutive elements, one element for each thread.

    A load's word may be no longer than the element's alignment, so 12 bytes of float3, a struct of
    three floats, become three loads of 4 bytes at a stride of 12. Raises ValueError for elements
    whose size is no multiple of 4 bytes.
    """
    word = next((w for w in reversed(WORD_BYTES) if itemsize > 0 and itemsize % w == 0), None)
    if word is None:
        raise ValueError(f"elements must be of a multiple of 4 bytes, not of {itemsize}.")
    loads = []
    for offset in range(0, itemsize, word):
        addresses = tuple(first_byte + t * itemsize + offset for t in range(threads))
        loads.append(Load(word, addresses, transactions(addresses, word)))
    return tuple(loads)


def _shortest(first: int, last: int, threads: Sequence[int]) -> Transaction:
    """The transaction of bytes `first` to `last` of one segment: halved while one half is idle."""
    n_bytes = SEGMENT_BYTES
    while n_bytes > SHORTEST_BYTES and first // (n_bytes // 2) == last // (n_bytes // 2):
        n_bytes //= 2
    return Transaction(first // n_bytes * n_bytes, n_bytes, tuple(threads))
