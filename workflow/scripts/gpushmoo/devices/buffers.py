"""Buffers between guard zones, images, and what a verified launch must leave in them.

Guard zones are words of a known value before and after every buffer of a kernel, within the
buffer's own allocation. A kernel that writes past its buffer writes there, and is found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import LaunchFailedError
from ..workloads.contract import Argument, BufferRef, SurfaceRef, TextureRef
from ..workloads.limits import KeyFormat

# Two words of 32 bits for each of several buffers.
WordPairs = npt.NDArray[np.uint32]

_SMALL, _PAGE, _PAGES = 2**18, 2**21, 8
# All NEAR words next to a buffer are read; of the others one in STRIDE.
NEAR, STRIDE = 2**14, 2**10


def guard_word(address: int) -> int:
    """The word in the zones of the buffer whose allocation has this address.

    Each buffer has its own word: a kernel that copies past the ends of its buffers carries the
    words of one zone into another zone, where they must be seen.
    """
    return (0xA5219C3D + (address >> 4) * 0x9E3779B1) % 2**32


def zone_bytes(nbytes: int) -> int:
    """Bytes of each of the two zones of a buffer of `nbytes`.

    As many as the buffer has, up to 16 MiB. Zones are whole pages of 2 MiB for buffers from 256 KiB
    on, multiples of 512 bytes for smaller ones, so the buffer keeps its allocation's alignment.
    """
    step, most = (_PAGE, _PAGES) if nbytes >= _SMALL else (512, _SMALL // 512)
    return step * min(most, max(1, -(-nbytes // step)))


def words_of(array: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The array's whole 32-bit words, not copied, and the last one if a part of it is ones."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = data.size // 4 * 4
    last = np.full(4 if whole < data.size else 0, 0xFF, np.uint8)
    last[: data.size - whole] = data[whole:]
    return data[:whole].view(np.uint32), last.view(np.uint32)


@dataclass(frozen=True)
class OutOfBoundsWrites:
    """Words that were written in the zones before the beginning and past the end of a buffer."""

    before: int
    past: int

    def __bool__(self) -> bool:
        return self.before + self.past > 0


class Image(ABC):
    """An image of a device, and a linear buffer for operations that need one."""

    _linear: Any = None

    def linear(self) -> Any:
        """A buffer of 32-bit words as large as the image, made once."""
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


# Kernels in both languages, which define the words in capitals. Of n words a thread reads FIRST(n)
# and every STEP-th word after it, before END(n). One changed word always changes the sum, since the
# mixing of a word is one to one.
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

KERNEL void compare(GLOBAL const WORD *a, GLOBAL const WORD *b, const LONG n, GLOBAL WORD *found)
{
    WORD differing = 0;
    for (LONG i = FIRST(n); i < END(n); i += STEP)
        differing += a[i] != b[i];
    if (differing) {
        ADD(found, differing);
        ADD(found + 1, 1u);
    }
}
"""
)

# Counts the ELEMs of `found` whose key (see `workloads.limits`) is not from `low` to `high`, and
# keeps the largest error as a share of the limit, the bits of a float: both may be compared as
# integers. `kind` 2 are floats of `mantissa` stored bits, `top` their largest magnitude but NaN.
# Errors are differences of keys or, with `values`, of the REALs that floats' keys are of.
LIMITS = """
#define SIGN ((ELEM)1 << (8 * sizeof(ELEM) - 1))
FUNCTION ELEM key_of(const ELEM bits, const int kind, const ELEM top)
{
    if (kind < 2)
        return kind == 1 ? bits ^ SIGN : bits;
    const ELEM size = bits & (ELEM)~SIGN;
    if (size > top)
        return (ELEM)~(ELEM)0;
    return bits & SIGN ? SIGN - size : SIGN + size;
}

FUNCTION REAL value_of(const ELEM key, const int mantissa, const int bias, const ELEM top)
{
    const ELEM size = key < SIGN ? SIGN - key : key - SIGN;
    const ELEM digits = size & (((ELEM)1 << mantissa) - 1);
    const int power = (int)(size >> mantissa);
    if (size == top && !digits)
        return key < SIGN ? -INFINITY : INFINITY;
    // The REAL's own bits: to compute a power takes ten times as long. Few values have no power.
    const BITS_OF_REAL bits = (BITS_OF_REAL)(power + REAL_BIAS - bias) << REAL_MANTISSA
                              | (BITS_OF_REAL)digits << (REAL_MANTISSA - mantissa);
    const REAL value = power ? AS_REAL(bits) : ldexp((REAL)digits, 1 - bias - mantissa);
    return key < SIGN ? -value : value;
}

KERNEL void limits(GLOBAL const ELEM *found, GLOBAL const ELEM *low, GLOBAL const ELEM *high,
                   const LONG n, const int kind, const int values, const ELEM top,
                   const int mantissa, const int bias, GLOBAL VOLATILE WORD *result)
{
    WORD wrong = 0;
    float worst = 0;
    for (LONG i = FIRST(n); i < END(n); i += STEP) {
        const ELEM key = key_of(found[i], kind, top), a = low[i], b = high[i];
        const int outside = key < a || key > b;
        wrong += outside;
        REAL below, above, width;
        if (values && kind == 2) {
            const REAL value = value_of(key, mantissa, bias, top);
            const REAL first = value_of(a, mantissa, bias, top);
            const REAL last = value_of(b, mantissa, bias, top);
            below = value - first, above = last - value, width = last - first;
        } else {
            below = key < a ? -(REAL)(a - key) : (REAL)(key - a);
            above = key > b ? -(REAL)(key - b) : (REAL)(b - key);
            width = (REAL)(b - a);
        }
        if (a == b || key == (ELEM)~(ELEM)0)
            worst = outside ? INFINITY : worst;
        else
            worst = fmax(worst, (float)(fabs(below - above) / width));
    }
    if (wrong)
        ADD(result, wrong);
    if (worst > 0)
        MAX(result + 1, BITS(worst));
}
"""


def limits_source(width: int) -> str:
    """LIMITS for elements of so many bytes."""
    element = {1: "unsigned char", 2: "unsigned short", 4: "WORD", 8: "LONG"}[width]
    real = {
        "ELEM": element,
        "REAL": "double" if width == 8 else "float",
        "AS_REAL": "AS_DOUBLE" if width == 8 else "AS_FLOAT",
        "BITS_OF_REAL": "LONG" if width == 8 else "WORD",
        "REAL_BIAS": 1023 if width == 8 else 127,
        "REAL_MANTISSA": 52 if width == 8 else 23,
    }
    return "".join(f"#define {name} {text}\n" for name, text in real.items()) + LIMITS


def named(argument: BufferRef | TextureRef | SurfaceRef, buffers: Mapping[str, Any]) -> Any:
    """The buffer or image of an argument. Raises LaunchFailedError if there is none."""
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


@dataclass(frozen=True)
class KeyBounds:
    """The keys' bounds of an output's elements, in buffers; `in_values`: errors are of values."""

    low: Any
    high: Any
    n: int
    form: KeyFormat
    in_values: bool

    @property
    def numbers(self) -> tuple[np.generic, ...]:
        """The numbers that the kernel `buffers.LIMITS` takes after its three buffers, in order."""
        form = self.form
        return (
            np.uint64(self.n),
            *(np.int32(form.kind), np.int32(self.in_values), form.unsigned.type(form.top)),
            *(np.int32(form.mantissa), np.int32(form.bias)),
        )


# The byte of poison, and another one for outputs that may hold the first.
POISON_BYTES = (0xFF, 0xA5)


@dataclass(frozen=True)
class Output:
    """A buffer that launches write, and what they must leave there.

    That are the words of `expected`, or elements within `bounds`. A launch finds the words of
    `content` or poison. The last `padding` bytes are no part of the output, and remain 0xFF.
    """

    buffer: Any
    expected: Any
    bounds: KeyBounds | None = None
    content: Any = None
    padding: int = 0


@dataclass(frozen=True)
class Deviation:
    """How many words or elements are wrong; the `worst` error as a share of its limit, if any."""

    wrong: int
    worst: float | None = None


@dataclass(frozen=True)
class Witnesses:
    """What a run must leave: `outputs`, poisoned by a byte, zones around `guarded`, `inputs`."""

    outputs: Sequence[Output]
    guarded: Sequence[Any]
    inputs: Sequence[Any]
    poison: int = POISON_BYTES[0]


@dataclass(frozen=True)
class ProofResult:
    """The result of a run on poisoned output: its seconds and the state of its witnesses.

    `deviations` belong to the outputs, `strays` to the guarded buffers, `sums` to the inputs (see
    `Device.strays`, of which only a part of the far words is read, and `checksums`).
    """

    seconds: float
    deviations: Sequence[Deviation]
    strays: Sequence[OutOfBoundsWrites]
    sums: Sequence[int]


def deviation(output: Output, found: npt.NDArray[np.uint32]) -> Deviation:
    """The deviation of an output from the two words of `Device.queue_comparison`."""
    if output.bounds is None:
        # Of 2³² different words the first number is 0 again, and the second one is not.
        return Deviation(int(found[0]) or int(found[1]))
    worst = float(found[1:].view(np.float32)[0])
    return Deviation(int(found[0]) or int(worst > 1), worst)
