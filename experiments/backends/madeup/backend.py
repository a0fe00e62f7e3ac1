"""Functions of the made-up backend, which its line in core/backends.py names."""

from collections.abc import Sequence
from pathlib import Path

from gpushmoo.core.errors import NoDeviceError
from gpushmoo.core.space import Version
from gpushmoo.devices.base import Device
from gpushmoo.devices.build_file import BuildRequest, VersionBuild
from gpushmoo.workloads.loader import KernelFolder

from .device import MadeUpDevice, compiled, program_of

DEVICES = 2


def open_device(index: int, runtime: str, cache: Path) -> Device:
    """Open the made-up device number `index`."""
    return MadeUpDevice(index)


def list_devices(wanted: int | None) -> Sequence[tuple[int, str]]:
    """There are two. Raises NoDeviceError for another."""
    if wanted is not None and wanted >= DEVICES:
        raise NoDeviceError(f"There are {DEVICES} made-up devices, so there is no device {wanted}.")
    return [(i, f"MADE-UP-{i}") for i in (range(DEVICES) if wanted is None else (wanted,))]


def count_devices() -> int:
    """Return the number of made-up devices."""
    return DEVICES


def targets(request: BuildRequest) -> tuple[str, ...]:
    """All are of one kind."""
    return ("madeup_1",)


def compile_version(
    request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, target: str
) -> VersionBuild:
    """What the device runs is the source with its names. Raises BuildError."""
    code = compiled(folder.path, dtype, folder.workload.macros(dtype, version))
    return VersionBuild("NumPy", program_of(code).options, code=code)
