"""Functions of NVIDIA's own libraries, as peers of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..dtypes import DTYPES
from ..workload import LibraryCall
from .base import LaunchRefusedError


def library_call(call: LibraryCall, buffers: Mapping[str, Any]) -> Callable[[], None]:
    """Queues `call` on the current stream.

    ``dot`` is cublasSdot or cublasDdot. It is not `cupy.dot`, which multiplies into memory and adds
    that up: twice the traffic. Raises LaunchRefusedError for another name.
    """
    if call.name != "dot":
        raise LaunchRefusedError(f"cuBLAS has no function '{call.name}'.")
    from cupy import cublas

    scalar = DTYPES[call.dtype].scalar
    x, y = (buffers[name].view(scalar) for name in call.inputs)
    out = buffers[call.output].view(scalar).reshape(())
    return lambda: cublas.dot(x, y, out=out)
