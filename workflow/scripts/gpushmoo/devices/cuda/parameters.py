"""What a kernel takes, read from its machine code: CUDA launches whatever it is given.

A cubin is an ELF file. Its section ``.nv.info.<kernel>`` is a list of attributes, of which one for
each parameter says the parameter's place and size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ...workloads.contract import Argument, Launch, SharedMemory

_SECTION = ".nv.info."
# Attributes have 4 bytes: format, name, and a value or, in the last of the formats, the number of
# bytes that follow.
_SIZED = 0x04
_PARAMETER = 0x17


def parameter_sizes(cubin: bytes) -> dict[str, tuple[int, ...]]:
    """Bytes of each parameter of every kernel of a cubin, by the kernel's name.

    Empty for what is no ELF file of 64 bits.
    """
    if cubin[:5] != b"\x7fELF\x02":
        return {}
    return {
        name.removeprefix(_SECTION): _sizes(body)
        for name, body in _sections(cubin)
        if name.startswith(_SECTION)
    }


def passed(launch: Launch) -> tuple[Argument, ...]:
    """The arguments that a kernel has parameters for: all but its shared memory."""
    return tuple(a for a in launch.args if not isinstance(a, SharedMemory))


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<3H", elf, 0x3A)
    headers = [struct.unpack_from("<2I4Q", elf, start + i * size) for i in range(count)]
    bodies = [elf[offset : offset + length] for *_, offset, length in headers]
    for header, body in zip(headers, bodies, strict=True):
        name = bodies[names][header[0] :].split(b"\0", 1)[0]
        yield name.decode(), body


def _sizes(attributes: bytes) -> tuple[int, ...]:
    found: dict[int, int] = {}
    at = 0
    while at + 4 <= len(attributes):
        form, name, value = struct.unpack_from("<2BH", attributes, at)
        if (form, name) == (_SIZED, _PARAMETER):
            # Symbol, place among the parameters, offset; the size is in the upper 14 bits.
            _, place, _, packed = struct.unpack_from("<I2HI", attributes, at + 4)
            found[place] = packed >> 18
        at += 4 + (value if form == _SIZED else 0)
    return tuple(found[place] for place in sorted(found))
