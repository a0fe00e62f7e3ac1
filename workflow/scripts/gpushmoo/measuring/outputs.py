"""Compare an output on the device with the expected one, and describe its wrong elements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..devices.base import Device, elements_of
from ..devices.memory import HOST_PART, POISON_BYTES, Deviation, Output, Tolerance
from ..workloads.contract import ceil_div
from ..workloads.tolerances import EXACT, FLOATING, KeyFormat, Limit, key_format, parts

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Wrong:
    """A wrong element of an output.

    Attributes
    ----------
    place
        Index of the element in the flat array.
    bits
        Bits of its value, as an integer.
    said
        Clause with the index, the expected and the actual value.
    hint
        Clause on the likely cause, in parentheses, or empty.
    """

    place: int
    bits: int
    said: str
    hint: str


# The hint for an element whose value depends on the earlier content of the output.
READ_FIRST = (
    " (it depends on the earlier content of the output: if the kernel reads that, name the output "
    "in `in_place` of `Check`, or have `inputs` of the workload return it)"
)


@dataclass(frozen=True)
class CheckedOutput:
    """An output on the device, and how its elements are compared with the expected ones.

    Attributes
    ----------
    name
        Name of the output.
    on_device
        Buffers of the output and of the expected values.
    shape
        Shape of the array.
    form
        Format of an element.
    scalar
        NumPy type of an element.
    limit
        Tolerance.
    twice
        Whether an element may be right with all bits of the poison. If so, the kernel is verified
        again with another poison.
    """

    name: str
    on_device: Output
    shape: tuple[int, ...]
    form: KeyFormat
    scalar: np.dtype[Any]
    limit: Limit
    twice: bool

    @classmethod
    def upload(
        cls, device: Device, name: str, expected: Array, limit: Limit, buffer: Any, content: Any
    ) -> CheckedOutput:
        """Upload the expected values of an output.

        Parameters
        ----------
        device
            The device.
        name
            Name of the output.
        expected
            Expected array.
        limit
            Tolerance.
        buffer
            Buffer of the output on the device.
        content
            Buffer with the content that a launch finds in the output, or None for poison.
        """
        form = key_format(expected.dtype)
        flat = np.ascontiguousarray(expected).reshape(-1)
        limit = limit.for_each(expected.shape)
        # The poison is NaN in every type of floats.
        twice = _has_nan(flat) if form.kind == FLOATING else _allows_ones(flat, limit, form)
        within = None
        # NaN has many bits.
        if not limit.exact or (form.kind == FLOATING and twice):
            bounds = device.upload(device_bounds(limit))
            within = Tolerance(limit, flat.size, flat.dtype, bounds)
        on_device = Output(buffer, device.upload(flat), within, content, -expected.nbytes % 4)
        twice = twice and content is None
        return cls(name, on_device, expected.shape, form, flat.dtype, limit, twice)

    @property
    def words(self) -> int:
        """Return the size of this output in 32-bit words, rounded up.

        It is the number of words that are compared with the expected output.
        """
        return ceil_div(math.prod(self.shape) * self.form.width, 4)

    def fault(self, found: Deviation, place: str) -> str:
        """Return a clause that describes a deviation.

        Parameters
        ----------
        found
            The deviation.
        place
            Text that names the output if there are several, for example `` of 'y'``.
        """
        if self.on_device.tolerance is None:
            return f"{found.wrong} of {self.words} words{place} differ"
        worst = found.worst or 0.0
        many = math.prod(self.shape)
        said = f"{found.wrong} of {many} elements{place} are off by more than {self.limit}"
        if self.limit.exact:
            return f"{found.wrong} of {many} elements{place} differ"
        if math.isinf(worst):
            return said
        times = f"{worst * self.limit.ulp:.4g} ulp" if self.limit.ulp else f"{worst:.3g} times that"
        return f"{said}, the worst by {times}"

    def bits(self, device: Device, place: int) -> int:
        """Read the element at index `place` from the device, as an integer of its bits."""
        return self._bits_in(device, self.on_device.buffer, place)

    def _bits_in(self, device: Device, buffer: Any, place: int) -> int:
        first = place * self.form.width // 4
        words = device.words(buffer, first, ceil_div(self.form.width, 4))
        held = words.view(self.form.unsigned)
        return int(held[place - first * 4 // self.form.width])

    def first(self, device: Device) -> Wrong | None:
        """Return the first wrong element of the output, or None if all are right."""
        own = self.on_device
        size = math.prod(self.shape)
        for begin in range(0, size, HOST_PART):
            count = min(HOST_PART, size - begin)
            found, expected = (
                elements_of(device, one, self.scalar, begin, count)
                for one in (own.buffer, own.expected)
            )
            if own.tolerance is None:
                wrong = found.view(self.form.unsigned) != expected.view(self.form.unsigned)
            else:
                wrong, _ = self.limit.judged(found, expected, begin)
            if wrong.any():
                place = int(np.argmax(wrong))
                return self._wrong(device, begin + place, found[place], expected[place])
        return None

    def _wrong(self, device: Device, place: int, got: Any, due: Any) -> Wrong:
        """Describe the wrong element at index `place`, whose value is `got` instead of `due`.

        The hint states whether the element still has its value from before the launch.
        """
        content = self.on_device.content
        held = int(np.asarray(got).view(self.form.unsigned))
        if content is not None:
            is_left = held == self._bits_in(device, content, place)
            hint = " (not changed)" if is_left else ""
        elif self.is_poison(held, POISON_BYTES[0]):
            hint = " (never written)"
        else:
            hint = hint_of(got, due, self.limit)
        index = [int(i) for i in np.unravel_index(place, self.shape)]
        return Wrong(place, held, f"the first at {index}: expected {due!s}, found {got!s}", hint)

    def is_poison(self, bits: int, byte: int) -> bool:
        """Return whether all bytes of an element are equal to `byte`."""
        return bits == int.from_bytes(bytes([byte]) * self.form.width)


def device_bounds(limit: Limit) -> Array:
    """Return the bounds of a flat tolerance in the form that the device uses, see `Tolerance`."""
    if limit.in_values:
        return np.atleast_1d(np.asarray(limit.atol, np.float64))
    return np.full(1, limit.max_ulp, np.uint64)


def hint_of(got: Any, due: Any, limit: Limit = EXACT) -> str:
    """Return the likely cause of a wrong value, in parentheses, empty if no cause is likely.

    Parameters
    ----------
    got, due
        Actual and expected value, NumPy scalars of one type.
    limit
        Tolerance of the output.
    """
    form = key_format(due.dtype)
    if form.kind == FLOATING:
        one, other = form.keys(np.array([got, due], due.dtype)).tolist()
        ulp = abs(one - other)
        if not limit.exact or ulp > 2 ** (form.mantissa // 2):
            return ""
        if ulp == 0:
            return " (the sign of zero alone; ulp=0 takes both zeros)"
        cause = _ROUNDED if ulp <= _LAST_BITS else " (a sum in another order?"
        return f"{cause} {ulp} ulp off; ulp, rtol or atol would allow it)"
    less = int(due) - int(got)
    if form.width < 4:
        return f"{_ROUNDED})" if abs(less) == 1 else ""
    # The poison is -1.
    return " (added to an output that nothing had cleared?)" if less == 1 else ""


def _allows_ones(flat: Array, limit: Limit, form: KeyFormat) -> bool:
    """Return whether an element of an integer output is right if all of its bits are ones."""
    ones = ~np.zeros(1, form.unsigned)
    bits = flat.view(form.unsigned)
    if limit.exact:
        return any((bits[part] == ones).any() for part in parts(flat.size))
    held = ones.view(flat.dtype)
    return not all(limit.judged(held, flat[p], p.start)[0].all() for p in parts(flat.size))


def _has_nan(flat: Array) -> bool:
    if flat.dtype.kind == "V":  # of ml_dtypes
        return any(np.isnan(flat[part].astype(np.float32)).any() for part in parts(flat.size))
    return flat.size > 0 and bool(np.isnan(flat.min()))


# Values by which a fused multiply-add or a sum of few terms may differ. Many terms may differ by
# more, up to half of the digits.
_LAST_BITS = 16
_ROUNDED = " (rounding? fused multiply-add?"
