"""Element types that kernels are swept in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class DType:
    """NumPy scalar times lanes, packed; a `normalised` byte b is read from images as b / 255."""

    name: str
    scalar: np.dtype[Any]
    lanes: int
    normalised: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of one element; 12 for float3."""
        return int(self.scalar.itemsize) * self.lanes

    def shape(self, height: int, width: int) -> tuple[int, ...]:
        """Shape of the NumPy array holding height × width elements; lanes come last."""
        return (height, width) if self.lanes == 1 else (height, width, self.lanes)


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("float", np.dtype(np.float32), 1),
        DType("double", np.dtype(np.float64), 1),
        DType("float2", np.dtype(np.float32), 2),
        DType("float3", np.dtype(np.float32), 3),
        DType("float4", np.dtype(np.float32), 4),
        DType("unorm8", np.dtype(np.uint8), 1, normalised=True),
        DType("unorm8x4", np.dtype(np.uint8), 4, normalised=True),
    )
}
