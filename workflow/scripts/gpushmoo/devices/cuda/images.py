"""CUDA arrays with their texture and surface objects (CuPy)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.dtypes import DType
from ...core.space import Problem
from ...workloads.contract import TextureRef

# Channels that a CUDA array may have, and the bits of one.
_CHANNELS = (1, 2, 4)
_BITS = (8, 16, 32)


def format_refusal(dtype: DType) -> str | None:
    """Why there is no CUDA array of this type; None when there is."""
    if dtype.lanes in _CHANNELS and 8 * dtype.scalar.itemsize in _BITS:
        return None
    return (
        f"CUDA has no image format for {dtype.name}; it has those of 1, 2 or 4 channels of 8, 16 "
        "or 32 bits"
    )


class CudaImage:
    """A two-dimensional CUDA array, and objects to fetch from it and to write to it."""

    def __init__(self, cupy: Any, problem: Problem, dtype: DType) -> None:
        """Allocate; CuPy's errors come out as they are."""
        self._cupy, self._dtype = cupy, dtype
        runtime, textures = cupy.cuda.runtime, cupy.cuda.texture
        floating = dtype.scalar.kind == "f"
        kind = "cudaChannelFormatKindFloat" if floating else "cudaChannelFormatKindUnsigned"
        bits = [8 * dtype.scalar.itemsize] * dtype.lanes + [0] * (4 - dtype.lanes)
        channels = textures.ChannelFormatDescriptor(*bits, getattr(runtime, kind))
        self._array = textures.CUDAarray(
            channels, problem.width, problem.height, 0, runtime.cudaArraySurfaceLoadStore
        )
        # As CuPy wants it: the channels of a texel are neighbours in a row.
        self._shape = (problem.height, problem.width * dtype.lanes)
        self.nbytes = problem.height * problem.width * dtype.itemsize
        self._resource = textures.ResourceDescriptor(
            runtime.cudaResourceTypeArray, cuArr=self._array
        )
        self._textures: dict[TextureRef, Any] = {}
        self._surface: Any = None
        self._linear: Any = None

    def texture(self, ref: TextureRef) -> Any:
        """The texture object that fetches as `ref` says; made once."""
        if ref not in self._textures:
            runtime, textures = self._cupy.cuda.runtime, self._cupy.cuda.texture
            mode = getattr(runtime, f"cudaAddressMode{ref.address.capitalize()}")
            fetched = "NormalizedFloat" if self._dtype.normalised else "ElementType"
            description = textures.TextureDescriptor(
                addressModes=(mode, mode),
                filterMode=getattr(runtime, f"cudaFilterMode{ref.filter.capitalize()}"),
                readMode=getattr(runtime, f"cudaReadMode{fetched}"),
                normalizedCoords=int(ref.normalised),
            )
            self._textures[ref] = textures.TextureObject(self._resource, description)
        return self._textures[ref]

    def surface(self) -> Any:
        """The surface object through which a kernel writes the image; made at the first call."""
        if self._surface is None:
            self._surface = self._cupy.cuda.texture.SurfaceObject(self._resource)
        return self._surface

    def linear(self) -> Any:
        """A buffer of 32-bit words as large as the image, for what only buffers can do; kept.

        Only an image of whole words has one.
        """
        if self._linear is None:
            self._linear = self._cupy.empty(self.nbytes // 4, dtype=np.uint32)
        return self._linear

    def copy_from(self, buffer: Any, stream: Any) -> None:
        """Queue a copy of the whole buffer into the image."""
        self._array.copy_from(buffer.view(self._dtype.scalar).reshape(self._shape), stream)

    def copy_to(self, buffer: Any, stream: Any) -> None:
        """Queue a copy of the whole image into the buffer."""
        self._array.copy_to(buffer.view(self._dtype.scalar).reshape(self._shape), stream)
