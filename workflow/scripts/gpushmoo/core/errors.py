"""All exceptions of the library. A module raises and catches those of this module only.

Each error's text is one sentence, unless its class says otherwise. The command line prints the
sentence of a `UserError` alone, and everything else with a traceback::

    UserError
        ConfigError (ValueError)
        CompareError (ValueError)
        ExplorerError (ValueError)
        ExportError (ValueError)
        JudgeError (ValueError)
        WatchError
        StrictError
        FailedSweepError
        RegressionError
        WriteError (OSError)
        DeviceError (TypedError)
            NoDeviceError
                HostError
            BuildError
            MachineCodeError
            CompilerSlowError
            OpenError
            LaunchConfigError
            LaunchFailedError
            DeviceLostError
            OutOfDeviceMemoryError
    TypedError
        WorkloadError (ValueError)
        EnergyUnavailableError
    UnusableFilesError
        DamagedFileError
            BadParquetError
        AggregateError
    UnreadableError (ValueError)
    OpenedError (ValueError)
    KernelFolderError (ValueError)
    SizeError (ValueError)
    ChapterError (ValueError)
    ChapterFolderError (ValueError)
    CounterError
    NotDeterminedError
    ClocksNotLockedError
    WorkerTimeoutError
    WorkerExitedError
        WorkerKilledError
    WorkerCrashedError (RuntimeError)
    JobSignalledError (BaseException)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from .display import MAX_SENTENCE, one_line

__all__ = [
    "AggregateError",
    "BadParquetError",
    "BuildError",
    "ChapterError",
    "ChapterFolderError",
    "ClocksNotLockedError",
    "CompareError",
    "CompilerSlowError",
    "ConfigError",
    "CounterError",
    "DamagedFileError",
    "DeviceError",
    "DeviceLostError",
    "EnergyUnavailableError",
    "ExplorerError",
    "ExportError",
    "FailedSweepError",
    "HostError",
    "JobSignalledError",
    "JudgeError",
    "KernelFolderError",
    "LaunchConfigError",
    "LaunchFailedError",
    "LaunchRefusedError",
    "MachineCodeError",
    "NoDeviceError",
    "NotDeterminedError",
    "OpenError",
    "OpenedError",
    "OutOfDeviceMemoryError",
    "RegressionError",
    "SizeError",
    "StrictError",
    "TypedError",
    "UnreadableError",
    "UnusableFilesError",
    "UserError",
    "WatchError",
    "WorkerCrashedError",
    "WorkerExitedError",
    "WorkerKilledError",
    "WorkerTimeoutError",
    "WorkloadError",
    "WriteError",
]


# Requests


class UserError(Exception):
    """An error whose text, one sentence, is all that the user of a run needs to know."""


class ConfigError(UserError, ValueError):
    """The configuration is not usable. One sentence names the key and the allowed values."""

    def __init__(self, text: str) -> None:
        # Names and values are the user's and may hold line breaks; the sentence stays one line.
        super().__init__(" ".join(text.split()))


class CompareError(UserError, ValueError):
    """These runs cannot be compared."""


class ExplorerError(UserError, ValueError):
    """A page of this run cannot be made."""


class ExportError(UserError, ValueError):
    """The run cannot be exported in the requested format."""


class JudgeError(UserError, ValueError):
    """A file of another tuner cannot be read or judged."""


class WatchError(UserError):
    """The folder that `watch` was given has no run, or a plan that this version cannot read."""


# Verdicts of a run


class StrictError(UserError):
    """A strict run has cells that ended in a fault."""


class FailedSweepError(UserError):
    """Nothing of a sweep could be measured; a sentence for each such sweep."""


class RegressionError(UserError):
    """The fastest launch of a group got significantly slower."""


# Cells and devices


class TypedError(Exception):
    """An error whose type determines a cell's status; its text is cut to one sentence."""

    def __str__(self) -> str:
        return one_line(super().__str__(), MAX_SENTENCE)


class WorkloadError(TypedError, ValueError):
    """A workload raised an error or returned an unusable value; the sentence names its file."""


class EnergyUnavailableError(TypedError):
    """The device's energy cannot be measured."""


class DeviceError(TypedError, UserError):
    """A device could not do the requested work."""


class NoDeviceError(DeviceError):
    """No usable device of the backend; the sentence names the package to install."""


class HostError(NoDeviceError):
    """Failure of a compiler or a runtime on this machine; one sentence with the remedy.

    It is not the fault of a kernel, so nothing of it is kept: the next start tries again.
    """


class BuildError(DeviceError):
    """The kernel did not compile; `log` is the compiler's message."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


class MachineCodeError(DeviceError):
    """The machine code of a version lacks its timed accesses."""


class CompilerSlowError(DeviceError):
    """Versions take longer to compile than the measuring process may take."""


class OpenError(DeviceError):
    """The process that was to open the device and compile has crashed or hung."""


class LaunchConfigError(DeviceError):
    """The launch needs more than a block or the device has (status ``out_of_resources``)."""


# The former name, which kernels' folders may raise.
LaunchRefusedError = LaunchConfigError


class LaunchFailedError(DeviceError):
    """The launch failed for another reason (status ``launch_failed``)."""


class DeviceLostError(DeviceError):
    """The device or its context is gone; nothing more can be measured in this process."""


class OutOfDeviceMemoryError(DeviceError):
    """A buffer does not fit into the free memory of the device (status ``out_of_resources``)."""


class ClocksNotLockedError(Exception):
    """The clocks were not locked or not freed; one clause with the reason."""


# Files


class WriteError(UserError, OSError):
    """A file could not be written; the sentence ends with the remedy.

    `path` is the file, and `errno` the number of the system's error if it has one.
    """

    def __init__(self, sentence: str, path: Path, number: int | None) -> None:
        super().__init__(sentence)
        self.path = path
        self.errno = number


class UnreadableError(ValueError):
    """A folder or file cannot be read; the sentence begins with its name."""


class UnusableFilesError(Exception):
    """Files must not be used. `files` are those at fault, which a job sets aside."""

    def __init__(self, sentence: str, files: Sequence[Path] = ()) -> None:
        super().__init__(sentence)
        self.files = tuple(files)


class DamagedFileError(UnusableFilesError):
    """A file differs from the file that was written; the sentence begins with its name."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"'{path}' {what}", [path])
        self.path = path


class BadParquetError(DamagedFileError):
    """A file is not a complete Parquet file of gpushmoo; the sentence begins with its name."""


class AggregateError(UnusableFilesError):
    """The shards do not make one data set."""


class OpenedError(ValueError):
    """The named folder or file contains no data set."""


# Kernels and chapters


class KernelFolderError(ValueError):
    """A kernel folder is missing or violates the contract."""


class SizeError(ValueError):
    """A size is impossible on the device; a clause that begins with the size."""


class ChapterError(ValueError):
    """A chapter refuses its options; one clause that names the configuration's key."""


class ChapterFolderError(ValueError):
    """A folder of chapters is missing, or two chapters have one name."""


# Studies and the model


class CounterError(Exception):
    """No hardware counters could be read; the sentence ends with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Hardware counters were not read: {reason}")


class NotDeterminedError(Exception):
    """The cells do not determine a parameter of the device model."""


# Processes


class WorkerTimeoutError(Exception):
    """The measuring process was silent for too long."""


class WorkerExitedError(Exception):
    """The measuring process ended early; the sentence names the exit status or signal."""


class WorkerKilledError(WorkerExitedError):
    """A signal that no kernel causes ended the process, such as that of a person."""


class WorkerCrashedError(RuntimeError):
    """A program failed inside the measuring process; the device is not at fault."""


class JobSignalledError(BaseException):
    """A signal ended the job. A BaseException, so that no ``except Exception`` catches it."""


# Errors that a user can resolve: their text is enough. Any other error is a fault of gpushmoo, so
# its traceback must be shown.
REFUSALS = (
    UserError,
    TypedError,
    UnusableFilesError,
    UnreadableError,
    OpenedError,
    KernelFolderError,
    SizeError,
    ChapterError,
    ChapterFolderError,
)


P = ParamSpec("P")
R = TypeVar("R")


def raises_at_caller(function: Callable[P, R]) -> Callable[P, R]:
    """Remove the lines of gpushmoo from the traceback of an error in `REFUSALS`.

    A program that calls `function` then ends with its own line and the sentence. If the error has a
    cause, for example an error in a function of the user, the traceback of the cause is kept.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except REFUSALS as err:
            raise err.with_traceback(None) from err.__cause__

    return called
