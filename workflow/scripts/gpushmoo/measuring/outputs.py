"""An output on the device: what is expected of it, and what is said of its wrong elements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..devices.base import Device
from ..devices.buffers import Deviation, KeyBounds, Output
from ..workloads.contract import ceil_div
from ..workloads.limits import EXACT, FLOATING, KeyFormat, Limit, key_format, parts

Array = npt.NDArray[Any]

# Words that are read back at a time to find the first wrong one.
CHUNK = 2**20


@dataclass(frozen=True)
class Wrong:
    """A wrong element: its place, its bits, and clauses on both and on its likely cause."""

    place: int
    bits: int
    said: str
    hint: str


# The hint for an element whose value depends on the earlier content of the output.
READ_FIRST = (
    " (it depends on the earlier content of the output: if the kernel reads that, name the output "
    "in `in_place` of `tune`, or have `inputs` of the workload return it)"
)


@dataclass(frozen=True)
class CheckedOutput:
    """An output on the device, and how its elements are compared.

    `twice`: an element may be right with all bits of the poison, so another poison follows.
    `expected` are the values of an output with a limit, of which the device has keys alone.
    """

    name: str
    on_device: Output
    shape: tuple[int, ...]
    form: KeyFormat
    scalar: np.dtype[Any]
    limit: Limit
    twice: bool
    expected: Array | None = None

    @classmethod
    def upload(
        cls, device: Device, name: str, expected: Array, limit: Limit, buffer: Any, content: Any
    ) -> CheckedOutput:
        """The output in `buffer`, where a launch finds `content`, or poison for None."""
        form, flat = key_format(expected.dtype), np.ascontiguousarray(expected).reshape(-1)
        bounds, padding = None, -expected.nbytes % 4
        # NaN has many bits.
        if not limit.exact or (form.kind == FLOATING and _has_nan(flat)):
            low, high = limit.bounds(expected)
            ones = form.keys(~np.zeros(1, form.unsigned))
            twice = any(
                ((low[part] <= ones) & (ones <= high[part])).any() for part in parts(flat.size)
            )
            first, last = device.upload(low), device.upload(high)
            bounds = KeyBounds(first, last, flat.size, form, limit.in_values)
            on_device = Output(buffer, first, bounds, content, padding)
        else:
            ones = ~form.unsigned.type(0)
            twice = form.kind != FLOATING and bool(_has(flat.view(form.unsigned), ones))
            on_device = Output(buffer, device.upload(flat), None, content, padding)
        values = expected if bounds else None
        twice = twice and content is None
        return cls(name, on_device, expected.shape, form, flat.dtype, limit, twice, values)

    @property
    def words(self) -> int:
        """The 32-bit words that are compared."""
        return ceil_div(math.prod(self.shape) * self.form.width, 4)

    def fault(self, found: Deviation, place: str) -> str:
        """A clause on a deviation; `place` says which of several outputs, and where."""
        if self.on_device.bounds is None:
            return f"{found.wrong} of {self.words} words{place} differ"
        worst, many = found.worst or 0.0, math.prod(self.shape)
        said = f"{found.wrong} of {many} elements{place} are off by more than {self.limit}"
        if self.limit.exact:
            return f"{found.wrong} of {many} elements{place} differ"
        if math.isinf(worst):
            return said
        times = f"{worst * self.limit.ulp:.4g} ulp" if self.limit.ulp else f"{worst:.3g} times that"
        return f"{said}, the worst by {times}"

    def bits(self, device: Device, place: int) -> int:
        """Read the element at index `place` from the device, as an integer of its bits."""
        first = place * self.form.width // 4
        words = device.words(self.on_device.buffer, first, ceil_div(self.form.width, 4))
        held = words.view(self.form.unsigned)
        return int(held[place - first * 4 // self.form.width])

    def first(self, device: Device) -> Wrong | None:
        """The first wrong element, if there is one."""
        own, unsigned = self.on_device, self.form.unsigned
        size, step = math.prod(self.shape), 4 * CHUNK // self.form.width
        for begin in range(0, size, step):
            count = min(step, size - begin)

            def read(buffer: Any, begin: int = begin, count: int = count) -> Array:
                first = begin * self.form.width // 4
                words = device.words(buffer, first, ceil_div(count * self.form.width, 4))
                return words.view(unsigned)[:count]

            found = read(own.buffer)
            if own.bounds is None:
                wanted = read(own.expected)
                wrong = found != wanted
            else:
                keys = self.form.keys(found.view(self.scalar))
                wrong = (keys < read(own.bounds.low)) | (keys > read(own.bounds.high))
            if not wrong.any():
                continue
            place = int(np.argmax(wrong))
            got = found.view(self.scalar)[place]
            if self.expected is None:
                due = wanted.view(self.scalar)[place]
            else:
                due = self.expected.reshape(-1)[begin + place]
            if own.content is not None:
                hint = " (not changed)" if found[place] == read(own.content)[place] else ""
            elif found[place] == ~unsigned.type(0):
                hint = " (never written)"
            else:
                hint = hint_of(got, due, self.limit)
            index = [int(i) for i in np.unravel_index(begin + place, self.shape)]
            said = f"the first at {index}: expected {due!s}, found {got!s}"
            return Wrong(begin + place, int(found[place]), said, hint)
        return None

    def is_poison(self, bits: int, byte: int) -> bool:
        """Whether an element's bits are all this byte."""
        return bits == int.from_bytes(bytes([byte]) * self.form.width)


def hint_of(got: Any, due: Any, limit: Limit = EXACT) -> str:
    """What a wrong value looks like, in brackets; "" where it looks like nothing."""
    form = key_format(due.dtype)
    if form.kind == FLOATING:
        one, other = form.keys(np.array([got, due], due.dtype)).tolist()
        steps = abs(one - other)
        if not limit.exact or steps > 2 ** (form.mantissa // 2):
            return ""
        if steps == 0:
            return " (the sign of zero alone; ulp=0 takes both zeros)"
        cause = _ROUNDED if steps <= _LAST_BITS else " (a sum in another order?"
        return f"{cause} {steps} ulp off; ulp, rtol or atol would allow it)"
    less = int(due) - int(got)
    if form.width < 4:
        return f"{_ROUNDED})" if abs(less) == 1 else ""
    # The poison is -1.
    return " (added to an output that nothing had cleared?)" if less == 1 else ""


def _has(flat: Array, value: Any) -> bool:
    return any((flat[part] == value).any() for part in parts(flat.size))


def _has_nan(flat: Array) -> bool:
    if flat.dtype.kind == "V":  # of ml_dtypes
        return any(np.isnan(flat[part].astype(np.float32)).any() for part in parts(flat.size))
    return flat.size > 0 and bool(np.isnan(flat.min()))


# Values by which a fused multiply-add or a sum of few terms may differ. Many terms may differ by
# more, up to half of the digits.
_LAST_BITS = 16
_ROUNDED = " (rounding? fused multiply-add?"
