"""Errors that more than one package raises or catches."""

from __future__ import annotations

from .display import MOST_SENTENCE, one_line


class UserError(Exception):
    """An error whose text, one sentence, is all that the user of a run needs to know."""


class ConfigError(UserError, ValueError):
    """The configuration is not usable; one sentence names the key and what is allowed."""

    def __init__(self, text: str) -> None:
        # Names and values are the user's and may hold line breaks; the sentence stays one line.
        super().__init__(" ".join(text.split()))


class TypedError(Exception):
    """An error whose type says how a cell ends; one sentence, whatever it was given."""

    def __str__(self) -> str:
        return one_line(super().__str__(), MOST_SENTENCE)


class WorkloadError(TypedError, ValueError):
    """A workload raised an error or returned an unusable value; one sentence with its file."""


class DeviceError(TypedError, UserError):
    """A device could not do what was asked; one sentence."""


class NoDeviceError(DeviceError):
    """No usable device of the backend; the sentence says what to install."""


class HostError(NoDeviceError):
    """This machine kept a compiler or a runtime from its work; one sentence with the remedy.

    No kernel is to blame, so nothing of it is kept: the next start tries again.
    """


class BuildError(DeviceError):
    """The kernel did not compile; `log` holds the compiler's message."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


class LaunchRefusedError(DeviceError):
    """The launch asks for more resources than a block or the device has (status ``resources``)."""


class LaunchFailedError(DeviceError):
    """The launch failed for another reason (status ``launch_failed``)."""


class DeviceLostError(DeviceError):
    """The device or its context is gone; nothing more can be measured in this process."""


class OutOfDeviceMemoryError(DeviceError):
    """A buffer does not fit into the memory that the device has left (status ``resources``)."""
