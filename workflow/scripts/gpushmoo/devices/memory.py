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
from ..workloads.tolerances import KeyFormat, Limit, key_format

# Two words of 32 bits for each of several buffers.
WordPairs = npt.NDArray[np.uint32]

_SMALL = 2**18
_PAGE = 2**21
_PAGES = 8
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


@dataclass(frozen=True)
class Differing:
    """A check that adds the words that differ from those of `expected`, and 1 if any does."""

    expected: Any


@dataclass(frozen=True)
class Strays:
    """A check that adds the words written before, and past, a buffer, one far word in `stride`."""

    stride: int = STRIDE


@dataclass(frozen=True)
class Checksum:
    """A check that adds a number for a buffer's content; one changed word always changes it."""


# A backend runs each as the kernel of `KERNELS` that does it.
Check = Differing | Strays | Checksum


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

# Counts the ELEMs of `found` that are further from what is expected than `workloads.limits` allows.
# Keeps the largest error as a share of its limit, the bits of a float: bits of floats that are not
# negative have the order of the floats. `kind` 2 are floats of `mantissa` stored bits. `top` is
# their largest magnitude but NaN. Keys of finite values are `least` to `most`. A BOUND counts keys.
# With VALUES it bounds differences of values, together with `rtol` of the expected size. There is
# one for `each` element, or one for all. SUM and PRODUCT round one by one, because a fused
# multiply-add would be another limit than NumPy's.
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

#if VALUES
FUNCTION double value_of(const ELEM key, const int kind, const int mantissa, const int bias)
{
    if (kind == 0)
        return (double)key;
    const ELEM size = key < SIGN ? SIGN - key : key - SIGN;
    double value = (double)size;
    if (kind == 2) {
        const LONG digits = size & (((ELEM)1 << mantissa) - 1);
        const int power = (int)(size >> mantissa);
        // A double's own bits: to compute a power takes ten times as long. Few values have none.
        const LONG bits = (LONG)(power + 1023 - bias) << 52 | digits << (52 - mantissa);
        value = power ? AS_DOUBLE(bits) : ldexp((double)digits, 1 - bias - mantissa);
    }
    return key < SIGN ? -value : value;
}
#endif

KERNEL void limits(GLOBAL const ELEM *found, GLOBAL const ELEM *expected,
                   GLOBAL const BOUND *bounds, const int each, const BOUND rtol, const LONG n,
                   const int kind, const ELEM top, const ELEM least, const ELEM most,
                   const int mantissa, const int bias, GLOBAL VOLATILE WORD *result)
{
    WORD wrong = 0;
    float worst = 0;
    for (LONG i = FIRST(n); i < END(n); i += STEP) {
        const ELEM key = key_of(found[i], kind, top), due = key_of(expected[i], kind, top);
        if (key == due)
            continue;
        if (key < least || key > most || due < least || due > most) {
            wrong += 1;
            worst = INFINITY;
            continue;
        }
        const LONG steps = key > due ? key - due : due - key;
        BOUND bound = bounds[each ? i : 0];
#if VALUES
        const double centre = value_of(due, kind, mantissa, bias);
        bound = SUM(bound, PRODUCT(rtol, fabs(centre)));
        double off = (double)steps;
        // A double has not each whole number of 64 bits, of which all differ by less than 2^64.
        int right = bound >= 18446744073709551616.0 || steps <= (LONG)bound;
        if (kind == 2) {
            off = fabs(value_of(key, kind, mantissa, bias) - centre);
            right = off <= bound;
        }
        const float share = (float)(off / bound);
#else
        const int right = steps <= bound;
        const float share = (float)steps / (float)bound;
#endif
        wrong += !right;
        // The quotient of equal numbers may be rounded to more than 1.
        worst = fmax(worst, right ? fmin(share, 1.0f) : share);
    }
    if (wrong)
        ADD(result, wrong);
    if (worst > 0)
        MAX(result + 1, BITS(worst));
}
"""


def limits_source(width: int, in_values: bool) -> str:
    """Return LIMITS for elements of `width` bytes; limits in values need a device with doubles."""
    element = {1: "unsigned char", 2: "unsigned short", 4: "WORD", 8: "LONG"}[width]
    bound = "double" if in_values else "LONG"
    defined = {"ELEM": element, "VALUES": int(in_values), "BOUND": bound}
    return "".join(f"#define {name} {text}\n" for name, text in defined.items()) + LIMITS


def named(argument: BufferRef | TextureRef | SurfaceRef, buffers: Mapping[str, Any]) -> Any:
    """Return the buffer or image of an argument; raise LaunchFailedError if it does not exist."""
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
    """Raise LaunchFailedError unless the arguments fit parameters with the bytes in `taken`.

    For a runtime that passes on any argument unchecked. Buffers and images are passed in 8 bytes.
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
class Tolerance:
    """The `limit` of an output's `n` elements, as the kernel LIMITS takes it.

    The buffer `bounds` has one bound of all elements, or one of each.
    """

    limit: Limit
    n: int
    scalar: np.dtype[Any]
    bounds: Any

    @property
    def form(self) -> KeyFormat:
        """How elements of this type become keys: integers in the order of their values.

        Neighbouring floats have neighbouring keys, so a difference of keys counts ulp.
        """
        return key_format(self.scalar)

    @property
    def numbers(self) -> tuple[np.generic, ...]:
        """The numbers that the kernel takes after its three buffers, in order."""
        form = self.form
        key = self.form.unsigned.type
        rtol = np.float64(self.limit.rtol) if self.limit.in_values else np.uint64(0)
        ends = (key(end) for end in (form.top, *form.ends))
        each, kind = np.int32(np.ndim(self.limit.atol)), np.int32(form.kind)
        digits = np.int32(form.mantissa), np.int32(form.bias)
        return (each, rtol, np.uint64(self.n), kind, *ends, *digits)


# Elements of an output that the host reads at a time.
HOST_PART = 2**20
# The byte of poison, and another one for outputs that may hold the first.
POISON_BYTES = (0xFF, 0xA5)


@dataclass(frozen=True)
class Output:
    """A buffer that launches write, and what they must leave there.

    That are the words of `expected`, or elements within a `tolerance` of its elements. A launch
    finds the words of `content` or poison. The last `padding` bytes are not part of the output, and
    remain 0xFF.
    """

    buffer: Any
    expected: Any
    tolerance: Tolerance | None = None
    content: Any = None
    padding: int = 0


@dataclass(frozen=True)
class Deviation:
    """How many words or elements are wrong; the `worst` error as a share of its limit, if any."""

    wrong: int
    worst: float | None = None


@dataclass(frozen=True)
class ProofBuffers:
    """What a run must leave: `outputs`, poisoned by a byte, zones around `guarded`, `inputs`."""

    outputs: Sequence[Output]
    guarded: Sequence[Any]
    inputs: Sequence[Any]
    poison: int = POISON_BYTES[0]


@dataclass(frozen=True)
class ProofResult:
    """The result of a run on poisoned output: its seconds and the state of its proof_buffers.

    `deviations` belong to the outputs, `strays` to the guarded buffers, `sums` to the inputs (see
    `Device.strays`, of which only a part of the far words is read, and `checksums`).
    """

    seconds: float
    deviations: Sequence[Deviation]
    strays: Sequence[OutOfBoundsWrites]
    sums: Sequence[int]


def deviation(output: Output, found: npt.NDArray[np.uint32]) -> Deviation:
    """The deviation of an output from the two words of `Device.queue_comparison`."""
    if output.tolerance is None:
        # Of 2³² different words the first number is 0 again, and the second one is not.
        return Deviation(int(found[0]) or int(found[1]))
    worst = float(found[1:].view(np.float32)[0])
    return Deviation(int(found[0]) or int(worst > 1), worst)
