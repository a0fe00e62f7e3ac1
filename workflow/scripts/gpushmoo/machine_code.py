"""Checks the machine code of a kernel before it is measured: what is timed must be in it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .devices.base import BuildError, DeviceError, NoDeviceError
from .devices.cubins import cached_cubin
from .devices.nvrtc import build_options
from .devices.sass import EntryCode, complaints, disassemble
from .devices.visible import visible_archs
from .dtypes import DTYPES
from .job_params import ROOT
from .kernels import KernelFolder, load_kernel

log = logging.getLogger(__name__)


class MachineCodeError(DeviceError):
    """The machine code does not do what is to be timed; one sentence for each fault."""


def check_machine_code(params: Mapping[str, Any], cache: Path, out: Path) -> None:
    """Compile, disassemble and check a kernel and dtype; write `out` as JSON.

    `params` hold ``folder``, ``dtype``, ``variants``, ``arch`` (None asks the device). Raises
    MachineCodeError, or NoDeviceError when no device or tool answers.
    """
    folder = load_kernel(ROOT / params["folder"])
    arch = params["arch"] or _arch_of_device()
    told = checked(folder, params["dtype"], params["variants"], arch, cache)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(told, indent=1) + "\n")


def checked(
    folder: KernelFolder, dtype: str, variants: Sequence[str], arch: str, cache: Path
) -> dict[str, Any]:
    """What the compiler made of every variant, as JSON values.

    A variant that does not compile has its reason there: its cells tell it. Raises
    MachineCodeError when a timed access is not in the code as the workload says.
    """
    told: dict[str, Any] = {}
    faults: list[str] = []
    for variant in variants:
        try:
            found = _disassembled(folder, dtype, variant, arch, cache)
        except BuildError as err:
            log.error("%s\n%s", err, err.log)
            told[variant] = {"failure": str(err), "entries": []}
            continue
        for code in found.values():
            expected = folder.workload.accesses(code.entry, dtype, variant)
            faults += [f"{dtype}, {variant}: {c}" for c in complaints(code, expected)]
        entries = [found[name].to_json() for name in sorted(found)]
        told[variant] = {"failure": None, "entries": entries}
    if faults:
        log.error("%s", "\n".join(faults))
        more = f" And {len(faults) - 1} more, in the log." if len(faults) > 1 else ""
        raise MachineCodeError(f"{folder.name}: what is to be timed is not run. {faults[0]}{more}")
    return {"arch": arch, "variants": told}


def _arch_of_device() -> str:
    archs = visible_archs()
    if not archs:
        raise NoDeviceError(
            "No CUDA device answers; this needs an NVIDIA GPU and its driver (or cuda_arch in the "
            "configuration, to check machine code without one)."
        )
    return archs[0]


def _disassembled(
    folder: KernelFolder, dtype: str, variant: str, arch: str, cache: Path
) -> dict[str, EntryCode]:
    source = folder.source(".cu")
    if source is None:
        raise BuildError(f"Kernel '{folder.name}' has no kernel.cu.", "")
    options = build_options(DTYPES[dtype], folder.workload.defines(dtype, variant))
    path = cached_cubin(source.read_text(), folder.name, options, arch, cache)
    return disassemble(path.read_bytes())
