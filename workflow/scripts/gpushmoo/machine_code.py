"""Checks the machine code of a kernel before it is measured: what is timed must be in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from .contract import WorkloadError
from .devices.base import BuildError, DeviceError, NoDeviceError
from .devices.cubins import cached_cubin
from .devices.nvrtc import build_options
from .devices.sass import EntryCode, complaints, disassemble
from .devices.sources import kernel_source
from .devices.visible import visible_archs
from .dtypes import DTYPES
from .job_params import ROOT
from .kernels import KernelFolder, load_kernel
from .wholefile import read_json, write_json

log = logging.getLogger(__name__)


class MachineCodeError(DeviceError):
    """Machine code does not do what is to be timed, or there is none; one sentence."""


def check_machine_code(params: Mapping[str, Any], cache: Path, out: Path, terminal: TextIO) -> None:
    """Compile, disassemble and check a kernel and dtype; write `out` as JSON.

    `params` hold ``folder``, ``dtype``, ``variants``, ``arch`` (None asks the device). What fails
    is said on `terminal` and stands in the file; it costs nothing but the cells of its variant.
    Raises NoDeviceError when no device or tool answers.
    """
    folder = load_kernel(ROOT / params["folder"])
    arch = params["arch"] or _arch_of_device()
    told = checked(folder, params["dtype"], params["variants"], arch, cache)
    for variant, code in told["variants"].items():
        if code["failure"] is not None:
            where = f"{params['folder']}, {params['dtype']}, variant {variant}"
            terminal.write(f"gpushmoo: {where}: {code['failure']}\n")
    write_json(out, told)


def refuse_failures(files: Sequence[Path]) -> None:
    """Raise MachineCodeError when a file of `check_machine_code` tells of a failure."""
    failures = [
        f"{path.parent.name}, {path.stem}, {variant}"
        for path in files
        for variant, code in read_json(path)["variants"].items()
        if code["failure"] is not None
    ]
    if failures:
        raise MachineCodeError(f"The machine code of {'; '.join(failures)} is not as it must be.")


def checked(
    folder: KernelFolder, dtype: str, variants: Sequence[str], arch: str, cache: Path
) -> dict[str, Any]:
    """What the compiler made of every variant, as JSON values.

    A variant has a ``failure`` when it does not compile, when its workload fails, or when a timed
    access is not in its code as the workload says.
    """
    told = {v: _checked_variant(folder, dtype, v, arch, cache) for v in variants}
    return {"arch": arch, "variants": told}


def _checked_variant(
    folder: KernelFolder, dtype: str, variant: str, arch: str, cache: Path
) -> dict[str, Any]:
    try:
        found = _disassembled(folder, dtype, variant, arch, cache)
        faults = [
            complaint
            for code in found.values()
            for complaint in complaints(code, folder.workload.accesses(code.entry, dtype, variant))
        ]
    except (BuildError, WorkloadError) as err:
        log.error("%s\n%s", err, getattr(err, "log", ""))
        return {"failure": str(err), "entries": []}
    failure = None
    if faults:
        log.error("%s, %s:\n%s", dtype, variant, "\n".join(faults))
        more = f" And {len(faults) - 1} more, in the log." if len(faults) > 1 else ""
        failure = f"what is to be timed is not run: {faults[0]}{more}"
    return {"failure": failure, "entries": [found[name].to_json() for name in sorted(found)]}


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
    source = kernel_source(folder.path, ".cu")
    options = build_options(DTYPES[dtype], folder.workload.defines(dtype, variant))
    path = cached_cubin(source, folder.name, options, arch, cache)
    return disassemble(path.read_bytes())
