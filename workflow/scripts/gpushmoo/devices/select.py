"""Opens the device that a configuration asks for, and probes one in a process of its own.

Run as a program it prints the facts of the chosen device as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..core.backends import AUTO, BACKENDS
from ..core.errors import NoDeviceError
from ..core.paths import PACKAGE
from .base import Device, DeviceInfo, functions_of

PROBE_TIMEOUT_S = 60


@dataclass(frozen=True)
class DeviceChoice:
    """Which device to open.

    `backend` is a name in the registry or ``auto``; `runtime` one of the backend's runtimes or
    ``auto``, and of no meaning where it has only one. `cache` is the folder in which the runtimes
    keep what they compile.
    """

    backend: str
    index: int
    runtime: str
    cache: Path


def choice_of(params: Mapping[str, Any], cache: Path) -> DeviceChoice:
    """The device that a job's parameters name; of ``device: all`` the first."""
    index = 0 if params["device"] == "all" else int(params["device"])
    return DeviceChoice(params["backend"], index, params["opencl_runtime"], cache)


def open_device(choice: DeviceChoice) -> Device:
    """Open the chosen device in this process. Raises NoDeviceError; never falls back."""
    backend = BACKENDS[choice.backend]
    if choice.runtime == AUTO and backend.runtimes:
        choice = resolve(choice)[0]
    return functions_of(backend).open_device(choice.index, choice.runtime, choice.cache)


def open_for_job(
    params: Mapping[str, Any],
    cache: Path,
    lock: Callable[[Sequence[tuple[int, str]]], int],
) -> Device:
    """Open the device of a measuring job, locked.

    `lock` gets index and UUID of the devices that may measure, locks one of them and returns its
    index. With ``device: all`` these are all of a backend that lists them without opening any; of
    another they are the first, as its runtimes may show one CPU under several names. Raises
    NoDeviceError.
    """
    choice = choice_of(params, cache)
    wanted = None if params["device"] == "all" else choice.index
    listed = functions_of(BACKENDS[choice.backend]).list_devices(wanted)
    if listed is not None:
        return open_device(replace(choice, index=lock(listed)))
    device = open_device(choice)
    lock([(choice.index, device.info.uuid)])
    return device


def probe(choice: DeviceChoice) -> DeviceInfo:
    """Facts of the chosen device, asked in a subprocess with a time limit.

    A broken runtime aborts or hangs its process, and one that was initialised must not be forked;
    the caller's process stays clean. Raises NoDeviceError.
    """
    command = [sys.executable, "-m", "gpushmoo.devices.select"]
    command += [choice.backend, str(choice.index), choice.runtime, str(choice.cache)]
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    try:
        done = subprocess.run(
            command,
            env=env,
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
        facts = json.loads(done.stdout.splitlines()[-1])
        for name in ("max_block", "max_grid"):
            facts[name] = tuple(facts[name])
        facts["max_image"] = facts["max_image"] and tuple(facts["max_image"])
        return DeviceInfo(**facts)
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    if done.returncode < 0:
        last = (
            f"The {choice.backend} runtime killed its process (signal {-done.returncode}): {last}"
        )
    raise NoDeviceError(last)


def resolve(choice: DeviceChoice) -> tuple[DeviceChoice, DeviceInfo]:
    """The first that answers a probe where `choice` says ``auto``, and its facts.

    Raises NoDeviceError with the reasons of all that were tried.
    """
    reasons = []
    for tried in _meant(choice):
        try:
            return tried, probe(tried)
        except NoDeviceError as err:
            reasons.append(str(err))
    raise NoDeviceError(" ".join(reasons))


def _meant(choice: DeviceChoice) -> Iterator[DeviceChoice]:
    """What ``auto`` may stand for, in the registry's order; last what seems to have no device.

    A probe that finds nothing takes a third of a second, and then only says why.
    """
    names = sorted(BACKENDS, key=_seems_absent) if choice.backend == AUTO else [choice.backend]
    for name in names:
        runtimes = BACKENDS[name].runtimes if choice.runtime == AUTO else ()
        for runtime in runtimes or (choice.runtime,):
            yield replace(choice, backend=name, runtime=runtime)


def _seems_absent(name: str) -> bool:
    """Whether the backend says at once that a process here sees none of its devices."""
    backend = BACKENDS[name]
    return backend.claims_gpu and functions_of(backend).count_devices() == 0


def to_json(info: DeviceInfo) -> str:
    """The facts as one line of JSON."""
    return json.dumps({**asdict(info), "extra": dict(info.extra)}, sort_keys=True)


def main(argv: list[str]) -> int:
    """Print the facts, or the one-sentence reason on stderr with exit status 1."""
    backend, index, runtime, cache = argv
    try:
        device = open_device(DeviceChoice(backend, int(index), runtime, Path(cache)))
    except NoDeviceError as err:
        print(err, file=sys.stderr)
        return 1
    print(to_json(device.info))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
