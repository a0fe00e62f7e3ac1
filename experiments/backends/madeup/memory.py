"""The made-up device's memory: NumPy arrays between guard zones, of which little is free."""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gpushmoo.core.errors import OutOfDeviceMemoryError
from gpushmoo.devices.buffers import Strays, guard_word, zone_bytes

Words = npt.NDArray[np.uint32]
# Somebody else has the rest of what the device holds.
FREE_BYTES = 2**23


class MadeUpMemory:
    """A buffer is the middle of an array of 32-bit words."""

    def __init__(self) -> None:
        self._used = 0

    def allocate(self, nbytes: int) -> Words:
        """A buffer that holds what was there before. Raises OutOfDeviceMemoryError."""
        zone = zone_bytes(nbytes) // 4
        whole = np.full(nbytes // 4 + 2 * zone, 0xDEADBEEF, np.uint32)
        if self._used + whole.nbytes > FREE_BYTES:
            raise OutOfDeviceMemoryError(f"The buffer does not fit ({self._used} bytes are used).")
        self._used += whole.nbytes
        weakref.finalize(whole, self._free, whole.nbytes)
        buffer = whole[zone:-zone]
        self.guard(buffer)
        return buffer

    def _free(self, nbytes: int) -> None:
        self._used -= nbytes

    def upload(self, array: npt.NDArray[Any]) -> Words:
        """A buffer that holds `array`."""
        buffer = self.allocate(array.nbytes)
        buffer[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint32)
        return buffer

    def guard(self, buffer: Words) -> None:
        """Paint the zones."""
        for zone in _zones(buffer):
            zone[:] = _guard_word(buffer)

    def strays(self, buffers: Sequence[Words]) -> list[Strays]:
        """Words of the zones that are not as painted."""
        return [Strays(*(int((z != _guard_word(b)).sum()) for z in _zones(b))) for b in buffers]

    def checksums(self, buffers: Sequence[Words]) -> list[int]:
        """A number for each buffer's content."""
        return [zlib.crc32(b.tobytes()) for b in buffers]

    def mismatches(self, buffer: Words, expected: Words) -> int:
        """Words in which the two differ."""
        return int((buffer != expected).sum())

    def words(self, buffer: Words, begin: int, count: int) -> Words:
        """A copy of some words."""
        return buffer[begin : begin + count].copy()


def _guard_word(buffer: Words) -> int:
    whole: Any = buffer.base
    return guard_word(whole.ctypes.data)


def _zones(buffer: Words) -> tuple[Words, Words]:
    whole: Any = buffer.base
    zone = zone_bytes(buffer.nbytes) // 4
    return whole[:zone], whole[-zone:]
