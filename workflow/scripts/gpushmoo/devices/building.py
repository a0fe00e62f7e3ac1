"""Rule build_kernel: one kernel and dtype, compiled for the devices that measure it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from ..core.backends import AUTO, BACKENDS
from ..core.errors import BuildError, DeviceError, NoDeviceError, WorkloadError
from ..core.paths import ROOT
from ..core.schema import Status
from ..workloads.loader import KernelFolder, load_kernel
from .build_file import KernelBuild, VariantBuild, read_build, write_build
from .build_request import BuildRequest
from .functions import functions_of
from .isolated import TaskEnded, run_isolated
from .select import DeviceChoice, resolve

log = logging.getLogger(__name__)

# Seconds that a compiler may take for one variant.
_LIMIT_S = 600.0


class MachineCodeError(DeviceError):
    """Machine code does not do what is to be timed, or there is none; one sentence."""


def build_kernel(
    params: Mapping[str, Any], cache: Path, out: Path, terminal: TextIO, log_file: str, cores: int
) -> None:
    """Compile all variants of a kernel and dtype, on so many cores, and write the build file `out`.

    `params` hold ``folder``, ``kernel_digest``, ``dtype`` and ``variants``, and what a BuildRequest
    does. A variant that does not compile, ends its compiler or lacks what is to be timed is named
    on `terminal`, with its message in `log_file`; it costs nothing but its own cells. No device's
    runtime may have been initialised in this process. Raises NoDeviceError when no device or tool
    answers.
    """
    folder = load_kernel(ROOT / params["folder"])
    request = BuildRequest(
        params["backend"], params["device"], params["opencl_runtime"], params["cuda_arch"], cache
    )
    if request.opencl_runtime == AUTO and BACKENDS[request.backend].runtimes:
        choice = DeviceChoice(request.backend, 0, AUTO, cache)
        request = replace(request, opencl_runtime=resolve(choice)[0].runtime)
    build = _built(request, folder, params, cores)
    for target, variants in build.targets.items():
        for variant, made in variants.items():
            if made.failure is not None:
                log.error("%s, variant %s: %s\n%s", target, variant, made.failure, made.log)
                where = f"{params['folder']}, {params['dtype']}, variant {variant}"
                message = f"{made.failure} (whole message: {log_file})"
                terminal.write(f"gpushmoo: {where}: {message}\n")
    write_build(out, build)


def refuse_failures(files: Sequence[Path]) -> None:
    """Raise MachineCodeError when a build file holds a variant that cannot be measured."""
    failures = sorted(
        f"{path.parent.name}, {path.stem}, {variant}"
        for path in files
        for variants in read_build(path).targets.values()
        for variant, made in variants.items()
        if made.failure is not None
    )
    if failures:
        raise MachineCodeError(f"The machine code of {'; '.join(failures)} is not as it must be.")


def compile_here(
    request: BuildRequest, folder: KernelFolder, dtype: str, variant: str, target: str
) -> VariantBuild:
    """The variant compiled in this process, or why it is not. Raises NoDeviceError."""
    try:
        return functions_of(BACKENDS[request.backend]).compile_variant(
            request, folder, dtype, variant, target
        )
    except NoDeviceError:
        raise
    except BuildError as err:
        return VariantBuild(status=Status.BUILD_FAILED, failure=str(err), log=err.log)
    except WorkloadError as err:
        return VariantBuild(status=Status.WORKLOAD_FAILED, failure=str(err))


def _built(
    request: BuildRequest, folder: KernelFolder, params: Mapping[str, Any], cores: int
) -> KernelBuild:
    builder = functions_of(BACKENDS[request.backend])
    asked = run_isolated({"targets": partial(builder.targets, request)}, 1, _LIMIT_S)["targets"]
    if isinstance(asked, TaskEnded):
        raise NoDeviceError(f"The {request.backend} runtime cannot be asked: it {asked.how}.")
    tasks: dict[tuple[str, str | None], Callable[[], Any]] = {
        (target, variant): partial(compile_here, request, folder, params["dtype"], variant, target)
        for target in asked
        for variant in params["variants"]
    }
    tasks |= {(t, None): partial(builder.own_kernels, request, t) for t in asked}
    made = run_isolated(tasks, cores, _LIMIT_S)
    targets: dict[str, dict[str, VariantBuild]] = {target: {} for target in asked}
    own: dict[str, bytes] = {}
    for (target, variant), result in made.items():
        if variant is not None:
            targets[target][variant] = (
                _failed(result.how) if isinstance(result, TaskEnded) else result
            )
        elif isinstance(result, bytes):
            own[target] = result
    return KernelBuild(params["kernel_digest"], targets, own)


def _failed(how: str) -> VariantBuild:
    return VariantBuild(status=Status.BUILD_FAILED, failure=f"the compiler's process {how}")
