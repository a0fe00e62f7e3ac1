"""Call cuBLAS by its C functions, because CuPy's own functions refuse to be captured in a graph."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ...core.dtypes import DTYPES
from ...core.errors import LaunchConfigError, LaunchFailedError
from ...workloads.contract import LibraryCall
from ..base import PreparedLaunch
from ..capabilities import Translated

_DOTS = {"float32": "cublasSdot_v2_64", "float64": "cublasDdot_v2_64"}
_POINTER_MODE_DEVICE = 1


def loaded_library(name: str, maps: str = "/proc/self/maps") -> ctypes.CDLL:
    """Return the shared library `name` that this process has loaded already.

    Raises
    ------
    LaunchConfigError
        If the process has loaded no such library.
    """
    for line in Path(maps).read_text(encoding="utf-8").splitlines():
        file = line.split(maxsplit=5)[-1]
        if os.path.basename(file).startswith(f"{name}.so"):
            return ctypes.CDLL(file)
    raise LaunchConfigError(f"{name} is not loaded. Install CuPy with its CUDA libraries.")


class Cublas:
    """Functions of cuBLAS that are queued in one stream. Their results stay on the device.

    Parameters
    ----------
    library
        The loaded C library.
    stream
        Address of a CUDA stream.
    """

    def __init__(self, library: Any, stream: int) -> None:
        """Create a handle of cuBLAS for the stream."""
        self._library = library
        handle = ctypes.c_void_p()
        self._check("cublasCreate_v2", ctypes.byref(handle))
        self._handle = handle
        self._check("cublasSetStream_v2", handle, ctypes.c_void_p(stream))
        self._check("cublasSetPointerMode_v2", handle, _POINTER_MODE_DEVICE)

    def dot(self, x: Any, y: Any, out: Any) -> Callable[[], None]:
        """Return a function that queues ``out = x · y``; the arrays have one type.

        Raises
        ------
        LaunchConfigError
            If cuBLAS has no `dot` of this type.
        """
        name = _DOTS.get(str(x.dtype))
        if name is None:
            raise LaunchConfigError(f"cuBLAS has no `dot` of {x.dtype}. Use float.")
        at_x, at_y, at_out = (ctypes.c_void_p(array.data.ptr) for array in (x, y, out))
        count = ctypes.c_int64(x.size)
        step = ctypes.c_int64(1)
        return lambda: self._check(name, self._handle, count, at_x, step, at_y, step, at_out)

    def _check(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise LaunchFailedError(f"{name} failed with cuBLAS's status {status}.")


class CublasCalls:
    """Functions of cuBLAS as launches, see `base.Library`.

    Parameters
    ----------
    cupy
        The module CuPy.
    stream
        Stream in which functions are queued.
    translated
        Returns a context manager that converts errors of CuPy.
    bound
        Prepares a command on this stream to be timed.
    """

    def __init__(
        self,
        cupy: Any,
        stream: Any,
        translated: Translated,
        bound: Callable[[Callable[[], None]], PreparedLaunch],
    ) -> None:
        """Load no library before the first call."""
        self._cupy, self._stream, self._translated, self._bound = cupy, stream, translated, bound

    def bind(self, call: LibraryCall, buffers: Mapping[str, Any]) -> PreparedLaunch:
        """Prepare cuBLAS's ``dot``, because `cupy.dot` would store the products first.

        Raises
        ------
        LaunchConfigError
            If `call` is another function.
        """
        if call.name != "dot":
            raise LaunchConfigError(f"cuBLAS has no function '{call.name}'.")
        scalar = DTYPES[call.dtype].scalar
        with self._translated():
            x, y = (buffers[name].view(scalar) for name in call.inputs)
            out = buffers[call.output].view(scalar).reshape(())
            return self._bound(self._cublas.dot(x, y, out))

    @cached_property
    def _cublas(self) -> Cublas:
        self._cupy.cuda.device.get_cublas_handle()  # loads the library
        return Cublas(loaded_library("libcublas"), int(self._stream.ptr))
