"""Stands for nvidia-ml-py: adds what it is told to the file FAKE_NVML.

What FAKE_REFUSED names it refuses: ``free core:NVMLError;...``.
"""

import json
import os
from typing import Any


class NVMLError(Exception):
    pass


class NVMLError_NoPermission(NVMLError):  # noqa: N801, N818
    pass


class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818
    pass


NVML_CLOCK_LIMIT_ID_TDP = 0xFFFFFF01
NVML_CLOCK_MEM = 2


def _call(name: str, *args: Any) -> None:
    pairs = os.environ.get("FAKE_REFUSED", "").split(";")
    refused = dict(pair.split(":") for pair in pairs if pair)
    if name in refused:
        raise globals()[refused[name]](f"{name} refused")
    with open(os.environ["FAKE_NVML"], "a", encoding="utf-8") as file:
        file.write(json.dumps([name, *args]) + "\n")


def nvmlInit() -> None:  # noqa: N802
    pass


def nvmlDeviceGetHandleByUUID(uuid: bytes) -> str:  # noqa: N802
    return uuid.decode()


def nvmlDeviceGetHandleByPciBusId(bus: bytes) -> str:  # noqa: N802
    return f"bus {bus.decode()}"


def nvmlDeviceGetMaxClockInfo(handle: str, kind: int) -> int:  # noqa: N802
    return 3201


def nvmlDeviceSetGpuLockedClocks(handle: str, low: int, high: int) -> None:  # noqa: N802
    _call("lock core", handle, low, high)


def nvmlDeviceSetMemoryLockedClocks(handle: str, low: int, high: int) -> None:  # noqa: N802
    _call("lock memory", handle, low, high)


def nvmlDeviceResetGpuLockedClocks(handle: str) -> None:  # noqa: N802
    _call("free core", handle)


def nvmlDeviceResetMemoryLockedClocks(handle: str) -> None:  # noqa: N802
    _call("free memory", handle)


def nvmlDeviceGetTotalEnergyConsumption(handle: str) -> int:  # noqa: N802
    _call("energy", handle)
    return 123_456
