"""The functions of the HIP backend; importing them imports no CuPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import NoDeviceError
from gpushmoo.core.space import Version
from gpushmoo.devices.base import Device
from gpushmoo.devices.build_file import BuildRequest, VersionBuild
from gpushmoo.workloads.loader import KernelFolder

from .compiler import architecture, compiled, load_cupy, options_of
from .device import HipDevice

__all__ = ["compile_version", "count_devices", "list_devices", "open_device", "targets"]

# The driver's list of CPUs and GPUs, with a folder for each.
_NODES = Path("/sys/class/kfd/kfd/topology/nodes")


def open_device(index: int, runtime: str, cache: Path) -> Device:
    """Open HIP device `index`. Raises NoDeviceError."""
    return HipDevice(index, cache)


def list_devices(wanted: int | None) -> Sequence[tuple[int, str]]:
    """Index and place on the bus of each device, or of device `wanted`."""
    runtime = load_cupy().cuda.runtime
    count = runtime.getDeviceCount()
    if wanted is not None and wanted >= count:
        raise NoDeviceError(f"There are {count} HIP devices, so there is no device {wanted}.")
    indices = range(count) if wanted is None else (wanted,)
    return [(i, str(runtime.deviceGetPCIBusId(i))) for i in indices]


def count_devices() -> int:
    """Nodes with SIMD units, which CPUs have not; nothing is initialised."""
    properties = (node.read_text() for node in _NODES.glob("*/properties"))
    return sum("simd_count 0\n" not in text for text in properties)


def targets(request: BuildRequest) -> tuple[str, ...]:
    """The architectures of the requested devices. Raises NoDeviceError."""
    cupy = load_cupy()
    wanted = None if request.device == "all" else int(request.device)
    return tuple(sorted({architecture(cupy, index) for index, _ in list_devices(wanted)}))


def compile_version(
    request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, target: str
) -> VersionBuild:
    """Compile `version` for an architecture. Nobody reads its machine code yet."""
    w = folder.workload
    options = options_of(DTYPES[dtype], w.macros(dtype, version), (*w.options, *request.options))
    made = compiled(folder.path, options, target)
    return VersionBuild("hipRTC", " ".join(options), made.log, code=made.code)
