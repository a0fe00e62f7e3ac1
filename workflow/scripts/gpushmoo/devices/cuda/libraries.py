"""Functions of NVIDIA's own libraries, to compare kernels with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...core.dtypes import DTYPES
from ...core.errors import LaunchRefusedError
from ...workloads.contract import LibraryCall


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
