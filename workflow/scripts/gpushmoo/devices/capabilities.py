"""Define optional capabilities of a device besides `base.Device`: an object for each, or None.

A backend writes no code for a capability that its devices lack. The caller tests the object, and
does without it if it is None.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..core.dtypes import DType
from ..core.errors import LaunchConfigError
from ..core.space import Problem
from ..workloads.tolerances import Limit
from .memory import Output, Tolerance

# Makes a context manager that turns the backend's errors into `core.errors`.
Translated = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Reading:
    """Clocks in MHz, temperature, power in W, and by NVML's names why the clock is held down."""

    sm_clock_mhz: int
    memory_clock_mhz: int
    temperature_c: int
    power_w: float
    reasons: tuple[str, ...]

    @property
    def slowed(self) -> bool:
        """Whether the device slows down to protect itself."""
        return not SLOWED_BY.isdisjoint(self.reasons)


# An idle clock, a locked clock and the board's usual power limit are normal; these are not.
SLOWED_BY = frozenset(
    {"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"}
)


class Power(Protocol):
    """Sensors of a device: `Device.power`."""

    def read(self) -> Reading | None:
        """Read clocks, temperature, power and throttle reasons; None without an answer."""

    def energy_mj(self) -> int | None:
        """Return the energy in mJ used since the driver was loaded; None without a meter."""


class Images(ABC):
    """Images of a device, opaque to the caller as buffers are: `Device.images`."""

    def __init__(self, largest: tuple[int, int], translated: Translated) -> None:
        """`largest` is the largest width and height in texels (`DeviceInfo.max_image`)."""
        self._largest, self._translated = largest, translated

    def refusal(self, problem: Problem, dtype: DType) -> str | None:
        """Return why the device has no image of this size and type; None if it has."""
        width, height = self._largest
        if problem.width <= width and problem.height <= height:
            return self._format_refusal(dtype)
        return (
            f"an image of {problem.height} x {problem.width} texels is too large; the device takes "
            f"{height} x {width}"
        )

    def allocate(self, problem: Problem, dtype: DType) -> Any:
        """An image of undefined content. Raises LaunchConfigError or OutOfDeviceMemoryError."""
        refusal = self.refusal(problem, dtype)
        if refusal is not None:
            raise LaunchConfigError(f"There is no such image: {refusal}.")
        with self._translated():
            return self._new(problem, dtype)

    def upload(self, array: npt.NDArray[Any], dtype: DType) -> Any:
        """An image that holds `array` of shape (height, width[, lanes]). Raises as above."""
        image = self.allocate(Problem(*array.shape[:2]), dtype)
        with self._translated():
            self._fill(image, np.ascontiguousarray(array))
        return image

    @abstractmethod
    def _format_refusal(self, dtype: DType) -> str | None:
        """Why the device has no image of this type; None if it has."""

    @abstractmethod
    def _new(self, problem: Problem, dtype: DType) -> Any:
        """An image that was not refused, of undefined content."""

    @abstractmethod
    def _fill(self, image: Any, array: npt.NDArray[Any]) -> None:
        """Copy all of `array` into an image and wait."""


class Constants(Protocol):
    """Constant memory by the names of symbols: `Device.constants`."""

    def write(self, program: Any, constants: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write constant memory of a loaded program. Raises BuildError."""


class Limits(Protocol):
    """Compares within limits on the device, else the host does: `Device.limits`."""

    def judges(self, limit: Limit) -> bool:
        """Return whether the device compares within such a limit."""

    def queue(self, words: Any, output: Output, within: Tolerance, found: Any) -> None:
        """Queue the kernel of `memory.LIMITS` on an output's words; it writes to two words."""


class Counters(Protocol):
    """Hardware counters that a profiler reads: `Device.counters`."""

    def recorded(self) -> AbstractContextManager[None]:
        """Within it a waiting profiler reads the counters of each launch."""


# Instead of a clock: the device's clock at its rated power.
BASE = "base"


@dataclass(frozen=True)
class LockedClocks:
    """The core's clock in MHz or ``base``, the memory's; None is free, and `why` it is."""

    core: int | str | None
    memory_mhz: int | None = None
    why: str | None = None


class Clocks(Protocol):
    """Clocks that can be locked: `BackendModule.clocks`, since no device is open meanwhile."""

    def lock(self, asked: int | str) -> LockedClocks:
        """Hold the device at a core clock in MHz, or at ``base``, and its memory at its highest.

        Raises ClocksNotLockedError, and then nothing is changed.
        """

    def free(self) -> None:
        """Let the device choose its clocks again. Raises ClocksNotLockedError if it cannot."""
