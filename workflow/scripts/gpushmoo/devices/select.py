"""Opens a device by backend name, and probes one in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .base import Device, DeviceInfo, NoDeviceError
from .opencl_runtime import RUNTIMES

BACKENDS = ("cuda", "opencl")
PROBE_TIMEOUT_S = 60


@dataclass(frozen=True)
class DeviceChoice:
    """Which device to open: backend (``cuda`` or ``opencl``), index, OpenCL runtime or ``auto``."""

    backend: str
    index: int
    opencl_runtime: str
    cache: Path


def open_device(choice: DeviceChoice) -> Device:
    """Open the chosen device in this process. Raises NoDeviceError; never falls back."""
    if choice.backend == "cuda":
        from .cuda import CudaDevice

        return CudaDevice(choice.index, choice.cache)
    from .opencl import OpenCLDevice

    if choice.opencl_runtime == "auto":
        choice = resolve_runtime(choice)[0]
    return OpenCLDevice(choice.opencl_runtime, choice.index, choice.cache)


def probe(choice: DeviceChoice) -> DeviceInfo:
    """Facts of the chosen device, asked in a subprocess with a time limit.

    A broken OpenCL runtime aborts or hangs its process, and one that was initialised must not be
    forked; the caller's process stays clean. Raises NoDeviceError.
    """
    command = [sys.executable, "-m", "gpushmoo.devices.probe"]
    command += [choice.backend, str(choice.index), choice.opencl_runtime, str(choice.cache)]
    package = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(package)}
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


def resolve_runtime(choice: DeviceChoice) -> tuple[DeviceChoice, DeviceInfo]:
    """The first OpenCL runtime that answers a probe, for the choice ``auto``; NoDeviceError."""
    reasons = []
    for runtime in RUNTIMES:
        tried = replace(choice, opencl_runtime=runtime)
        try:
            return tried, probe(tried)
        except NoDeviceError as err:
            reasons.append(str(err))
    raise NoDeviceError(" ".join(reasons))


def resolve(backend: str, choice: DeviceChoice) -> tuple[DeviceChoice, DeviceInfo]:
    """Resolve ``auto``: CUDA when a device answers, else OpenCL. Raises NoDeviceError."""
    reasons = []
    for name in BACKENDS if backend == "auto" else (backend,):
        tried = replace(choice, backend=name)
        try:
            if name == "opencl" and choice.opencl_runtime == "auto":
                return resolve_runtime(tried)
            return tried, probe(tried)
        except NoDeviceError as err:
            reasons.append(str(err))
    raise NoDeviceError(" ".join(reasons))


def to_json(info: DeviceInfo) -> str:
    """The facts as one line of JSON."""
    return json.dumps({**asdict(info), "extra": dict(info.extra)}, sort_keys=True)
