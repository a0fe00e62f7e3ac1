"""The made-up device's memory: NumPy arrays between guard zones, of which little is free."""

import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gpushmoo.core.errors import OutOfDeviceMemoryError
from gpushmoo.devices.base import Device
from gpushmoo.devices.buffers import STRIDE, WordPairs, guard_word, zone_bytes

Words = npt.NDArray[np.uint32]
# Somebody else has the rest of what the device holds.
FREE_BYTES = 2**23


class MadeUpMemory(Device):
    """A device whose buffers are the middles of arrays of 32-bit words."""

    _used = 0

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
        """Paint the zones around a buffer."""
        for zone in _zones(buffer):
            zone[:] = _guard_word(buffer)

    def _found(self, buffers: Sequence[Words], queue: Callable[[Any, Any], None]) -> WordPairs:
        found = np.zeros((len(buffers), 2), np.uint32)
        for buffer, row in zip(buffers, found, strict=True):
            queue(buffer, row)
        return found

    def _queue_differing(self, buffer: Words, expected: Words, found: Any) -> None:
        found[0] += (buffer != expected).sum()

    def queue_strays(self, buffer: Words, found: Any, stride: int = STRIDE) -> None:
        """Words of the zones that are not as painted."""
        strays = [(zone != _guard_word(buffer)).sum() for zone in _zones(buffer)]
        found += np.array(strays, np.uint32)

    def queue_checksum(self, buffer: Words, found: Any) -> None:
        """A number for the buffer's content."""
        found[0] += zlib.crc32(buffer.tobytes())

    def _read(self, buffer: Words, begin: int, count: int) -> Words:
        return buffer[begin : begin + count].copy()


def _guard_word(buffer: Words) -> int:
    whole: Any = buffer.base
    return guard_word(whole.ctypes.data)


def _zones(buffer: Words) -> tuple[Words, Words]:
    whole: Any = buffer.base
    zone = zone_bytes(buffer.nbytes) // 4
    return whole[:zone], whole[-zone:]
