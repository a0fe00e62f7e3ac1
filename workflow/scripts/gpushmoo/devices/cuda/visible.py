"""The visible CUDA devices, asked of the driver alone: no CuPy, no context, 0.2 s.

Run as a program it prints their architectures; `visible_archs` runs it so, because a process that
has initialised the driver must not be forked, and a broken driver must not take the caller along.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
_TIMEOUT_S = 60


_DRIVER_LISTS = Path("/proc/driver/nvidia/gpus")


def visible_devices() -> int:
    """Number of CUDA devices that a process here sees, as far as can be told without the driver.

    CUDA_VISIBLE_DEVICES may name fewer than the driver lists. Without the list the driver is asked.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        listed = sum(1 for _ in _DRIVER_LISTS.iterdir())
    except OSError:
        return len(visible_archs())
    return listed if named is None else min(listed, len(list(filter(None, named.split(",")))))


def visible_archs() -> list[str]:
    """Architecture (``sm_90``) of every device that CUDA_VISIBLE_DEVICES shows; [] without any."""
    try:
        done = subprocess.run(
            # -P: no module of this folder is to stand in for one of the standard library.
            [sys.executable, "-P", "-S", __file__],
            capture_output=True,
            encoding="utf-8",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return []
    return done.stdout.split() if done.returncode == 0 else []


def _ask_driver() -> list[str]:
    """Raises OSError without the driver's library."""
    cuda = ctypes.CDLL("libcuda.so.1")
    count, device, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    archs = []
    for index in range(count.value):
        cuda.cuDeviceGet(ctypes.byref(device), index)
        digits = ""
        for attribute in (_MAJOR, _MINOR):
            cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            digits += str(value.value)
        archs.append(f"sm_{digits}")
    return archs


if __name__ == "__main__":
    try:
        print(*_ask_driver())
    except OSError:
        sys.exit(1)
