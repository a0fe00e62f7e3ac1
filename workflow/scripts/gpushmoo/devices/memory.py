"""Define guard zones, images, and the checks of buffers after a launch.

Guard zones are words of a known value before and after every buffer of a kernel, within the
buffer's allocation. A kernel that writes past its buffer changes them, so gpushmoo detects it.
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
    """Return the word in the guard zones of the buffer whose allocation starts at `address`.

    Each buffer has a different word. A kernel that copies past the ends of its buffers copies words
    from one zone into another zone, where they must be detected.
    """
    return (0xA5219C3D + (address >> 4) * 0x9E3779B1) % 2**32


def zone_bytes(nbytes: int) -> int:
    """Return the size of each of the two guard zones of a buffer of `nbytes` bytes.

    A zone is as large as the buffer, up to 16 MiB. It consists of whole pages of 2 MiB for buffers
    from 256 KiB on, and of multiples of 512 bytes for smaller ones. So the buffer keeps the
    alignment of its allocation.
    """
    step, most = (_PAGE, _PAGES) if nbytes >= _SMALL else (512, _SMALL // 512)
    return step * min(most, max(1, -(-nbytes // step)))


def words_of(array: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return an array as 32-bit words: the whole ones as a view, and a last one padded with ones.

    The second array is empty if the size of the first is a multiple of 4 bytes.
    """
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = data.size // 4 * 4
    last = np.full(4 if whole < data.size else 0, 0xFF, np.uint8)
    last[: data.size - whole] = data[whole:]
    return data[:whole].view(np.uint32), last.view(np.uint32)


@dataclass(frozen=True)
class OutOfBoundsWrites:
    """Number of words that were written before the beginning and past the end of a buffer."""

    before: int
    past: int

    def __bool__(self) -> bool:
        return self.before + self.past > 0


@dataclass(frozen=True)
class Differing:
    """Check that adds the number of words that differ from `expected`, and 1 if any differs."""

    expected: Any


@dataclass(frozen=True)
class Strays:
    """Check that adds the numbers of words written before and past a buffer.

    It reads one in `stride` of the words that are far from the buffer.
    """

    stride: int = STRIDE


@dataclass(frozen=True)
class Checksum:
    """Check that adds a checksum of a buffer. If one word changes, the checksum always changes."""


# A backend runs each as the kernel of `KERNELS` that does it.
Check = Differing | Strays | Checksum


class Image(ABC):
    """An image of a device, with a linear buffer for operations that require one."""

    _linear: Any = None

    def linear(self) -> Any:
        """Return a buffer of 32-bit words as large as the image, which is created once."""
        if self._linear is None:
            self._linear = self._new_linear()
        return self._linear

    @abstractmethod
    def _new_linear(self) -> Any:
        """Return a new buffer as large as the image."""

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
    """Return the source of LIMITS for elements of `width` bytes.

    Parameters
    ----------
    width
        Bytes of an element: 1, 2, 4 or 8.
    in_values
        Whether the tolerance bounds differences of values, which requires a device with doubles.
        Otherwise it bounds differences of keys.
    """
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
    """Raise LaunchFailedError if the kernel `entry` requires another number of arguments."""
    if len(args) != taken:
        raise LaunchFailedError(
            f"kernel '{entry}' takes {taken} arguments, the launch has {len(args)}"
        )


def check_sizes(entry: str, args: Sequence[Argument], taken: Sequence[int]) -> None:
    """Raise LaunchFailedError if the arguments do not fit the kernel's parameters.

    It is for a runtime that passes any argument unchecked. Buffers and images are passed in 8
    bytes.

    Parameters
    ----------
    entry
        Name of the kernel function.
    args
        Arguments of the launch.
    taken
        Size of each parameter in bytes.
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
    """Tolerance of an output, in the form that the kernel LIMITS uses.

    Attributes
    ----------
    limit
        The tolerance.
    n
        Number of elements.
    scalar
        NumPy type of an element.
    bounds
        Buffer with one bound for all elements, or one for each.
    """

    limit: Limit
    n: int
    scalar: np.dtype[Any]
    bounds: Any

    @property
    def form(self) -> KeyFormat:
        """Format of keys: integers in the order of the values of this type.

        Neighboring floats have neighboring keys, so a difference of keys is a number of ulp.
        """
        return key_format(self.scalar)

    @property
    def numbers(self) -> tuple[np.generic, ...]:
        """Numbers that follow the three buffers in the arguments of the kernel."""
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
    """A buffer that launches write, and its expected content.

    Attributes
    ----------
    buffer
        The buffer.
    expected
        Buffer with the expected values.
    tolerance
        Tolerance of elements, or None if all words must be equal.
    content
        Buffer with the content that a launch finds in the output, or None for poison.
    padding
        Number of bytes at the end that are not part of the output. They remain 0xFF.
    """

    buffer: Any
    expected: Any
    tolerance: Tolerance | None = None
    content: Any = None
    padding: int = 0


@dataclass(frozen=True)
class Deviation:
    """Number of wrong words or elements, and the `worst` error as a share of a tolerance."""

    wrong: int
    worst: float | None = None


@dataclass(frozen=True)
class ProofBuffers:
    """Buffers that are prepared before a launch, and checked after it.

    Attributes
    ----------
    outputs
        Outputs, which are filled with `poison` before and compared after the launch.
    guarded
        Buffers whose guard zones must not change.
    inputs
        Buffers whose content must not change.
    poison
        Byte with which outputs are filled.
    """

    outputs: Sequence[Output]
    guarded: Sequence[Any]
    inputs: Sequence[Any]
    poison: int = POISON_BYTES[0]


@dataclass(frozen=True)
class ProofResult:
    """Result of a launch on poisoned output.

    Attributes
    ----------
    seconds
        Time of the launch in seconds.
    deviations
        Deviation of each output.
    strays
        Writes around each guarded buffer. Only a part of the far words is read.
    sums
        Checksum of each input.
    """

    seconds: float
    deviations: Sequence[Deviation]
    strays: Sequence[OutOfBoundsWrites]
    sums: Sequence[int]


def deviation(output: Output, found: npt.NDArray[np.uint32]) -> Deviation:
    """Return the deviation that the two words of `Device.queue_comparison` encode.

    Parameters
    ----------
    output
        The output.
    found
        The two words.
    """
    if output.tolerance is None:
        # Of 2³² different words the first number is 0 again, and the second one is not.
        return Deviation(int(found[0]) or int(found[1]))
    worst = float(found[1:].view(np.float32)[0])
    return Deviation(int(found[0]) or int(worst > 1), worst)
