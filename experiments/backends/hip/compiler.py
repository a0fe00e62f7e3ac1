"""Machine code of HIP by hipRTC, which CuPy for ROCm offers under NVRTC's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpushmoo.core.dtypes import DType
from gpushmoo.core.errors import NoDeviceError
from gpushmoo.devices.build_file import CompiledCode, compile_error, kernel_source
from gpushmoo.devices.machine_code.cubins import build_options

SUFFIX = ".hip"


def load_cupy() -> Any:
    """The module cupy, built for ROCm. Raises NoDeviceError."""
    try:
        import cupy
    except ImportError as err:
        raise NoDeviceError(f"CuPy for ROCm is missing ({err}).") from err
    if not cupy.cuda.runtime.is_hip:
        raise NoDeviceError("This CuPy is built for CUDA; install that for ROCm.")
    return cupy


def architecture(cupy: Any, index: int) -> str:
    """The architecture of a device, as ``gfx942``, without the modes behind the colon."""
    name: bytes = cupy.cuda.runtime.getDeviceProperties(index)["gcnArchName"]
    return name.decode().split(":")[0]


def options_of(
    dtype: DType, defines: Mapping[str, str], more: Sequence[str] = ()
) -> tuple[str, ...]:
    """hipRTC's options, which are NVRTC's apart from the headers of small floats."""
    return (*build_options(dtype, defines), *more)


def compiled(folder: Path, options: Sequence[str], arch: str) -> CompiledCode:
    """The folder's ``kernel.hip`` compiled for `arch`. Raises BuildError."""
    name = f"kernel{SUFFIX}"
    return compiled_text(kernel_source(folder, SUFFIX), name, options, arch)


def compiled_text(source: str, name: str, options: Sequence[str], arch: str) -> CompiledCode:
    """A source compiled for `arch`. Raises BuildError."""
    nvrtc = load_cupy().cuda.nvrtc
    program = nvrtc.createProgram(source, name, (), ())
    try:
        try:
            nvrtc.compileProgram(program, (f"--offload-arch={arch}", *options))
        except nvrtc.NVRTCError as err:
            raise compile_error(name, nvrtc.getProgramLog(program)) from err
        # On ROCm it is the code object that the device loads.
        return CompiledCode(nvrtc.getPTX(program), nvrtc.getProgramLog(program))
    finally:
        nvrtc.destroyProgram(program)
