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
    """State of a device, from its sensors.

    Attributes
    ----------
    sm_clock_mhz, memory_clock_mhz
        Clocks in MHz.
    temperature_c
        Temperature in degrees Celsius.
    power_w
        Power in watts.
    reasons
        Reasons why the clock is not higher, by NVML's names.
    """

    sm_clock_mhz: int
    memory_clock_mhz: int
    temperature_c: int
    power_w: float
    reasons: tuple[str, ...]

    @property
    def slowed(self) -> bool:
        """Whether the device throttles to protect itself."""
        return not SLOWED_BY.isdisjoint(self.reasons)


# An idle clock, a locked clock and the board's usual power limit are normal; these are not.
SLOWED_BY = frozenset(
    {"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"}
)


class Power(Protocol):
    """Sensors of a device, see `Device.power`."""

    def read(self) -> Reading | None:
        """Return clocks, temperature, power and throttle reasons, or None without a response."""

    def energy_mj(self) -> int | None:
        """Return the energy used since the driver was loaded, in mJ, or None without a meter."""


class Images(ABC):
    """Images of a device, opaque to the caller as buffers are, see `Device.images`.

    Parameters
    ----------
    largest
        Largest width and height in texels (`DeviceInfo.max_image`).
    translated
        Returns a context manager that converts errors of the backend.
    """

    def __init__(self, largest: tuple[int, int], translated: Translated) -> None:
        """Keep the limits that images of this device have."""
        self._largest, self._translated = largest, translated

    def refusal(self, problem: Problem, dtype: DType) -> str | None:
        """Return why the device does not support images of this size and type, or None if it does.

        Parameters
        ----------
        problem
            Height and width in texels.
        dtype
            Type of a texel.
        """
        width, height = self._largest
        if problem.width <= width and problem.height <= height:
            return self._format_refusal(dtype)
        return (
            f"an image of {problem.height} x {problem.width} texels is too large; the device takes "
            f"{height} x {width}"
        )

    def allocate(self, problem: Problem, dtype: DType) -> Any:
        """Return a new image with undefined content.

        Parameters
        ----------
        problem
            Height and width in texels.
        dtype
            Type of a texel.

        Raises
        ------
        LaunchConfigError
            If the device does not support such images.
        OutOfDeviceMemoryError
            If the device has too little memory.
        """
        refusal = self.refusal(problem, dtype)
        if refusal is not None:
            raise LaunchConfigError(f"There is no such image: {refusal}.")
        with self._translated():
            return self._new(problem, dtype)

    def upload(self, array: npt.NDArray[Any], dtype: DType) -> Any:
        """Return a new image with the content of an array. Errors are those of `allocate`.

        Parameters
        ----------
        array
            Array of shape (height, width) or (height, width, lanes).
        dtype
            Type of a texel.
        """
        image = self.allocate(Problem(*array.shape[:2]), dtype)
        with self._translated():
            self._fill(image, np.ascontiguousarray(array))
        return image

    @abstractmethod
    def _format_refusal(self, dtype: DType) -> str | None:
        """Return why the device does not support images of this type, or None if it does."""

    @abstractmethod
    def _new(self, problem: Problem, dtype: DType) -> Any:
        """Return a new image of a supported size and type, with undefined content."""

    @abstractmethod
    def _fill(self, image: Any, array: npt.NDArray[Any]) -> None:
        """Copy an array into an image, and wait."""


class Constants(Protocol):
    """Constant memory by the names of symbols, see `Device.constants`."""

    def write(self, program: Any, constants: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write arrays into the constant memory of a loaded program.

        Parameters
        ----------
        program
            The program.
        constants
            Arrays by name of the symbol.

        Raises
        ------
        BuildError
            If there is no such symbol, or if it is too small.
        """


class Limits(Protocol):
    """Compares outputs within tolerances on the device, see `Device.limits`.

    A device without this capability leaves the comparison to the host.
    """

    def judges(self, limit: Limit) -> bool:
        """Return whether the device supports comparisons within this tolerance."""

    def queue(self, words: Any, output: Output, within: Tolerance, found: Any) -> None:
        """Queue the kernel of `memory.LIMITS`, which compares an output within a tolerance.

        Parameters
        ----------
        words
            Linear buffer with the output.
        output
            Expected values.
        within
            Tolerance.
        found
            Buffer of two words for the result.
        """


class Counters(Protocol):
    """Hardware counters that a profiler reads, see `Device.counters`."""

    def recorded(self) -> AbstractContextManager[None]:
        """Return a context manager in which a profiler reads the counters of each launch."""


# Instead of a clock: the device's clock at its rated power.
BASE = "base"


@dataclass(frozen=True)
class LockedClocks:
    """Clocks at which a device is locked.

    Attributes
    ----------
    core
        Core clock in MHz or ``base``, or None if it is not locked.
    memory_mhz
        Memory clock in MHz, or None if it is not locked.
    why
        Reason why the core clock is not locked, as a clause.
    """

    core: int | str | None
    memory_mhz: int | None = None
    why: str | None = None


class Clocks(Protocol):
    """Clocks of a device that can be locked without opening it, see `BackendModule.clocks`."""

    def lock(self, asked: int | str) -> LockedClocks:
        """Lock the core clock, and the memory clock at its highest value.

        Parameters
        ----------
        asked
            Core clock in MHz, or ``base``.

        Raises
        ------
        ClocksNotLockedError
            If the clocks cannot be locked. Nothing is changed then.
        """

    def free(self) -> None:
        """Let the device choose its clocks again.

        Raises
        ------
        ClocksNotLockedError
            If the clocks cannot be freed.
        """
