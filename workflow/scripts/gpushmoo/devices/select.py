"""Open the device that a configuration requests, and probe one in a separate process.

Run as a program, it prints the facts of the chosen device as a Python literal.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from .. import __name__ as library
from ..core.backends import AUTO, BACKENDS
from ..core.errors import HostError, NoDeviceError
from ..core.paths import child_environment
from ..core.shard_job import ShardJob
from ..core.study_job import JobDevice
from ..storage.room import obstacle
from ..storage.temporary import OwnFolder
from .base import Device, DeviceInfo, functions_of

PROBE_TIMEOUT_S = 60


@dataclass(frozen=True)
class DeviceChoice:
    """A device that can be opened.

    Attributes
    ----------
    backend
        Name of the backend, or ``auto``.
    index
        Index of the device in its runtime, from 0.
    runtime
        Name of the OpenCL runtime, or ``auto``.
    cache
        Folder in which runtimes and compilers keep results.
    """

    backend: str
    index: int
    runtime: str
    cache: Path


def kept_for_calls() -> Path:
    """Return the folder in which runtimes and compilers keep their results for later calls."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / library
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that may not be written
        return _kept_for_now()
    return kept


@cache
def _kept_for_now() -> Path:
    folder = OwnFolder()
    # It is removed with the process.
    _FOLDERS.append(folder)
    return Path(folder.name)


_FOLDERS: list[OwnFolder] = []


def open_device(choice: DeviceChoice) -> Device:
    """Open the chosen device in this process. No other device is tried.

    Raises
    ------
    NoDeviceError
        If the device cannot be opened.
    """
    backend = BACKENDS[choice.backend]
    if choice.runtime == AUTO and backend.runtimes:
        choice = resolve(choice)[0]
    try:
        return functions_of(backend).open_device(choice.index, choice.runtime, choice.cache)
    except NoDeviceError as err:
        _refuse_full(choice.cache, err)
        raise


def open_for_job(
    job: ShardJob | JobDevice, cache: Path, lock: Callable[[Sequence[tuple[int, str]]], int]
) -> Device:
    """Lock and open the device of a measuring job.

    With ``device: all``, the candidates are all devices of the backend. If the backend cannot list
    them without opening them, only the first device is a candidate, because OpenCL's runtimes may
    show one CPU under several names.

    Parameters
    ----------
    job
        The job.
    cache
        Folder in which runtimes and compilers keep results.
    lock
        Locks one of several devices, given index and UUID of each, and returns its index.

    Raises
    ------
    NoDeviceError
        If the device cannot be opened.
    """
    wanted = None if job.device == "all" else int(job.device)
    choice = DeviceChoice(job.backend, wanted or 0, job.opencl_runtime, cache)
    listed = functions_of(BACKENDS[choice.backend]).list_devices(wanted)
    if listed is not None:
        return open_device(replace(choice, index=lock(listed)))
    device = open_device(choice)
    lock([(choice.index, device.info.uuid)])
    return device


def probe(choice: DeviceChoice) -> DeviceInfo:
    """Return the properties of a device, which a separate process opens.

    A broken runtime may abort or hang its process, and a process with a runtime must not fork.

    Parameters
    ----------
    choice
        The device.

    Raises
    ------
    NoDeviceError
        If the device cannot be opened, or if the process takes too long.
    """
    command = [sys.executable, "-m", "gpushmoo.devices.select"]
    command += [choice.backend, str(choice.index), choice.runtime, str(choice.cache)]
    try:
        done = subprocess.run(
            command,
            env=child_environment(),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as err:
        raise NoDeviceError(
            f"The {choice.backend} runtime did not answer within {PROBE_TIMEOUT_S} s."
        ) from err
    if done.returncode == 0:
        return DeviceInfo(**ast.literal_eval(done.stdout.splitlines()[-1]))
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    if done.returncode < 0:
        last = (
            f"The {choice.backend} runtime killed its process (signal {-done.returncode}): {last}"
        )
    raise NoDeviceError(last)


def resolve(
    choice: DeviceChoice, asked: Callable[[DeviceChoice], DeviceInfo] = probe
) -> tuple[DeviceChoice, DeviceInfo]:
    """Return the first device that responds if the choice is ``auto``, and its properties.

    Parameters
    ----------
    choice
        The choice, in which backend and runtime may be ``auto``.
    asked
        Opens a device, and returns its properties.

    Raises
    ------
    NoDeviceError
        With the reasons of all candidates.
    HostError
        If a full disk may be the reason of one.
    """
    reasons: dict[str, None] = {}
    for tried in _meant(choice):
        try:
            return tried, asked(tried)
        except NoDeviceError as err:
            _refuse_full(tried.cache, err)
            reasons[str(err)] = None
    raise NoDeviceError(" ".join(reasons))


def _refuse_full(cache: Path, err: NoDeviceError) -> None:
    """Raise HostError if `err` is one, or if the runtime's folder cannot be written."""
    if isinstance(err, HostError):
        raise err
    if (why := obstacle(cache)) is not None:
        raise HostError(why) from err


def _meant(choice: DeviceChoice) -> Iterator[DeviceChoice]:
    """Yield the candidates for ``auto`` in the backends' order, those without a device last."""

    def seems_absent(name: str) -> bool:
        backend = BACKENDS[name]
        return backend.claims_gpu and functions_of(backend).count_devices() == 0

    for name in sorted(BACKENDS, key=seems_absent) if choice.backend == AUTO else [choice.backend]:
        runtimes = BACKENDS[name].runtimes if choice.runtime == AUTO else ()
        for runtime in runtimes or (choice.runtime,):
            yield replace(choice, backend=name, runtime=runtime)


def main(argv: list[str]) -> int:
    """Print the properties of a device, or one sentence on stderr, and return the exit status.

    Parameters
    ----------
    argv
        Backend, index, runtime and cache of the device.
    """
    backend, index, runtime, cache = argv
    try:
        device = open_device(DeviceChoice(backend, int(index), runtime, Path(cache)))
    except NoDeviceError as err:
        print(err, file=sys.stderr)
        return 1
    print(asdict(device.info))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
