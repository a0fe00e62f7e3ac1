"""Which error ends a cell with which status."""

from __future__ import annotations

from ..core.errors import (
    BuildError,
    LaunchRefusedError,
    OutOfDeviceMemoryError,
    TypedError,
    WorkloadError,
)
from ..core.schema import Status


def status_of(err: TypedError) -> Status:
    """The status of a cell that ended by `err`: what the device cannot give is no fault."""
    match err:
        case LaunchRefusedError() | OutOfDeviceMemoryError():
            return Status.RESOURCES
        case BuildError():
            return Status.BUILD_FAILED
        case WorkloadError():
            return Status.WORKLOAD_FAILED
        case _:
            return Status.LAUNCH_FAILED
