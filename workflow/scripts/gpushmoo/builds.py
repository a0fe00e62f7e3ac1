"""What a kernel's variants are built into, before any of them is measured."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from .devices.base import BuildError, Device, Program
from .dtypes import DTYPES
from .kernels import KernelFolder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Builds:
    """Programs by variant; a variant that did not compile maps to the reason."""

    programs: dict[str, Program]
    failures: dict[str, str]


@dataclass
class HostProgram:
    """Stands for a program where nothing runs on the device."""

    options: str = ""
    log: str = ""

    def resident_per_unit(self, entry: str, threads: int) -> int:
        """1."""
        return 1

    def registers(self, entry: str) -> int | None:
        """None."""
        return None


def build_variants(
    device: Device, folder: KernelFolder, dtype: str, names: Sequence[str]
) -> Builds:
    """Compile each variant once; a compiler's message goes to the log, whole."""
    builds = Builds({}, {})
    if not folder.workload.device_code:
        return Builds({name: HostProgram() for name in names}, {})
    for variant in names:
        defines = folder.workload.defines(dtype, variant)
        try:
            builds.programs[variant] = device.build(folder.path, DTYPES[dtype], defines)
        except BuildError as err:
            log.error("%s, %s, variant %s: %s\n%s", folder.name, dtype, variant, err, err.log)
            builds.failures[variant] = str(err)
    return builds
