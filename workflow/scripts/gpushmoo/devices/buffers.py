"""Buffers between guard zones, and images: what those of all backends have in common.

Guard zones are words of a known value before and after every buffer that a kernel is given. They
belong to the buffer's own allocation, whose middle is handed out, so that a kernel which writes
past its buffer finds room there, and is found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import LaunchFailedError
from ..workloads.contract import Argument, BufferRef, SurfaceRef, TextureRef

# Two words of 32 bits for each of several buffers.
Found = npt.NDArray[np.uint32]

_SMALL, _PAGE, _PAGES = 2**18, 2**21, 8
# Words next to a buffer that are all looked at; of those further away one in so many is.
NEAR, STRIDE = 2**14, 2**10


def guard_word(address: int) -> int:
    """The word that stands in the zones of the buffer whose allocation has this address.

    Each buffer has one of its own: a kernel that goes on copying past the ends of its buffers
    carries the words of one zone into the other, where they must not be taken for what was there.
    """
    return (0xA5219C3D + (address >> 4) * 0x9E3779B1) % 2**32


def zone_bytes(nbytes: int) -> int:
    """Bytes of each of the two zones of a buffer of `nbytes`.

    As many as the buffer has, up to 16 MiB. Buffers of 256 KiB and more have zones of whole pages
    of 2 MiB and smaller ones of multiples of 512 bytes, so that the buffer keeps the alignment that
    its allocation has.
    """
    step, most = (_PAGE, _PAGES) if nbytes >= _SMALL else (512, _SMALL // 512)
    return step * min(most, max(1, -(-nbytes // step)))


@dataclass(frozen=True)
class Strays:
    """Words that were written in the zones before the beginning and past the end of a buffer."""

    before: int
    past: int

    def __bool__(self) -> bool:
        return self.before + self.past > 0


class GuardedBuffers(ABC):
    """A device's buffers, opaque to the caller, each the middle of a larger one between zones."""

    @abstractmethod
    def upload(self, array: npt.NDArray[Any]) -> Any:
        """A device buffer holding `array`. Raises OutOfDeviceMemoryError."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Any:
        """A buffer of undefined content. Raises OutOfDeviceMemoryError."""

    @abstractmethod
    def guard(self, buffer: Any) -> None:
        """Write the guard word to the zones before and after `buffer`."""

    @abstractmethod
    def words(self, buffer: Any, begin: int, count: int) -> npt.NDArray[np.uint32]:
        """`count` 32-bit words of `buffer` from the word `begin` on, on the host."""

    @abstractmethod
    def found(self, buffers: Sequence[Any], queue: Callable[[Any, Any], None]) -> Found:
        """What kernels, queued for each of the buffers, add up in two words of its own."""

    @abstractmethod
    def queue_comparison(self, buffer: Any, expected: Any, found: Any) -> None:
        """Queue what adds the number of words in which both differ to `found`: 64 bits."""

    @abstractmethod
    def queue_strays(self, buffer: Any, found: Any, stride: int = STRIDE) -> None:
        """Queue what adds the words written before and past `buffer` to `found`: two words."""

    @abstractmethod
    def queue_checksum(self, buffer: Any, found: Any) -> None:
        """Queue what adds a number for the content of `buffer` to `found`: a word."""

    def strays(self, buffers: Sequence[Any]) -> list[Strays]:
        """Words that were written around each of the buffers, counted on the device.

        Of the far words one in so many is looked at; only where there are some all are counted.
        """
        return [
            self._strays([buffer], 1)[0] if strays else strays
            for buffer, strays in zip(buffers, self._strays(buffers, STRIDE), strict=True)
        ]

    def _strays(self, buffers: Sequence[Any], stride: int) -> list[Strays]:
        found = self.found(buffers, lambda buffer, row: self.queue_strays(buffer, row, stride))
        return [Strays(int(before), int(past)) for before, past in found]

    def checksums(self, buffers: Sequence[Any]) -> list[int]:
        """A number for each buffer's content; one changed word always changes it."""
        return [int(total) for total, _ in self.found(buffers, self.queue_checksum)]

    def mismatches(self, buffer: Any, expected: Any) -> int:
        """In how many 32-bit words the two differ, counted on the device."""
        found = self.found([buffer], lambda one, row: self.queue_comparison(one, expected, row))
        return int(found.view(np.uint64)[0, 0])


class Image(ABC):
    """An image of a device, and a buffer beside it for what only buffers can do."""

    _linear: Any = None

    def linear(self) -> Any:
        """A buffer of 32-bit words as large as the image, which must be of whole words; kept."""
        if self._linear is None:
            self._linear = self._new_linear()
        return self._linear

    @abstractmethod
    def _new_linear(self) -> Any:
        """A buffer as large as the image."""

    @abstractmethod
    def copy_from(self, buffer: Any) -> Any:
        """Queue a copy of the whole buffer into the image."""

    @abstractmethod
    def copy_to(self, buffer: Any) -> Any:
        """Queue a copy of the whole image into the buffer."""


# Kernels of both languages, of which each says the words in capitals: of n words a thread looks at
# FIRST(n), at every STEP-th from there on, and ends before END(n). One word that changes always
# changes the sum, as its mixing is one to one.
KERNELS = (
    f"#define NEAR {NEAR}"
    + """
KERNEL void strays(GLOBAL const WORD *words, const WORD guard, const LONG zone, const LONG inner,
                   const LONG stride, GLOBAL WORD *found)
{
    const LONG near = zone < NEAR ? zone : NEAR;
    const LONG looked_at = near + (zone - near) / stride;
    WORD before = 0, past = 0;
    for (LONG i = FIRST(looked_at); i < END(looked_at); i += STEP) {
        const LONG away = i < near ? i : near + (i - near) * stride;
        before += words[zone - 1 - away] != guard;
        past += words[zone + inner + away] != guard;
    }
    if (before)
        ADD(found, before);
    if (past)
        ADD(found + 1, past);
}

KERNEL void checksum(GLOBAL const WORD *words, const LONG n, GLOBAL WORD *found)
{
    WORD sum = 0;
    for (LONG i = FIRST(n); i < END(n); i += STEP) {
        WORD mixed = words[i] + (WORD)i * 0x9E3779B1u;
        mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6Bu;
        mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35u;
        sum += mixed ^ (mixed >> 16);
    }
    ADD(found, sum);
}
"""
)


def named(argument: BufferRef | TextureRef | SurfaceRef, buffers: Mapping[str, Any]) -> Any:
    """The buffer or image that an argument names. Raises LaunchFailedError where it is none."""
    if argument.name not in buffers:
        there = ", ".join(sorted(buffers)) or "none"
        raise LaunchFailedError(
            f"an argument names the buffer '{argument.name}'; there are: {there}"
        )
    found = buffers[argument.name]
    if isinstance(argument, BufferRef) and isinstance(found, Image):
        raise LaunchFailedError(
            f"'{argument.name}' is an image; pass it by TextureRef or SurfaceRef"
        )
    if not isinstance(argument, BufferRef) and not isinstance(found, Image):
        raise LaunchFailedError(f"'{argument.name}' is a buffer and no image; pass it by BufferRef")
    return found


def check_count(entry: str, args: Sequence[Argument], taken: int) -> None:
    """Raise LaunchFailedError unless these are as many arguments as the kernel `entry` takes."""
    if len(args) != taken:
        raise LaunchFailedError(
            f"kernel '{entry}' takes {taken} arguments, the launch has {len(args)}"
        )


def check_sizes(entry: str, args: Sequence[Argument], taken: Sequence[int]) -> None:
    """Raise LaunchFailedError unless the arguments fit parameters of so many bytes each.

    For a runtime that passes on whatever it is given; buffers and images are passed in 8 bytes.
    """
    check_count(entry, args, len(taken))
    for place, (argument, nbytes) in enumerate(zip(args, taken, strict=True)):
        given = argument.nbytes if isinstance(argument, np.generic) else 8
        if given != nbytes:
            raise LaunchFailedError(
                f"argument {place} of kernel '{entry}' is of {nbytes} bytes, the launch "
                f"gives {given} ({argument!r})"
            )
