"""Allocate CUDA arrays for kernels that read textures or write surfaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.dtypes import DType
from ...core.space import Problem
from ...workloads.contract import TextureRef
from ..capabilities import Images, Translated
from ..memory import Image

# Channels that a CUDA array may have, and the bits of one.
_CHANNELS = (1, 2, 4)
_BITS = (8, 16, 32)


class CudaImage(Image):
    """A two-dimensional CUDA array, with texture and surface objects for it.

    Parameters
    ----------
    cupy
        The module CuPy.
    stream
        Stream for copies.
    problem
        Height and width in texels.
    dtype
        Type of a texel.
    """

    def __init__(self, cupy: Any, stream: Any, problem: Problem, dtype: DType) -> None:
        """Allocate the array. Errors of CuPy are not converted."""
        self._cupy, self._stream, self._dtype = cupy, stream, dtype
        runtime, textures = cupy.cuda.runtime, cupy.cuda.texture
        floating = dtype.scalar.kind == "f"
        kind = "cudaChannelFormatKindFloat" if floating else "cudaChannelFormatKindUnsigned"
        bits = [8 * dtype.scalar.itemsize] * dtype.lanes + [0] * (4 - dtype.lanes)
        channels = textures.ChannelFormatDescriptor(*bits, getattr(runtime, kind))
        self._array = textures.CUDAarray(
            channels, problem.width, problem.height, 0, runtime.cudaArraySurfaceLoadStore
        )
        # For CuPy the channels of a texel are neighbours in a row.
        self._shape = (problem.height, problem.width * dtype.lanes)
        self.nbytes = problem.height * problem.width * dtype.itemsize
        self._resource = textures.ResourceDescriptor(
            runtime.cudaResourceTypeArray, cuArr=self._array
        )
        self._textures: dict[TextureRef, Any] = {}
        self._surface: Any = None

    def texture(self, ref: TextureRef) -> Any:
        """Return the texture object with the settings of `ref`, which is created once."""
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
        """Return the surface object for writing, which is created once."""
        if self._surface is None:
            self._surface = self._cupy.cuda.texture.SurfaceObject(self._resource)
        return self._surface

    def _new_linear(self) -> Any:
        return self._cupy.empty(self.nbytes // 4, dtype=np.uint32)

    def copy_from(self, buffer: Any) -> None:
        """Queue a copy of the whole buffer into the image."""
        words = buffer.view(self._dtype.scalar).reshape(self._shape)
        self._array.copy_from(words, self._stream)

    def copy_to(self, buffer: Any) -> None:
        """Queue a copy of the whole image into the buffer."""
        words = buffer.view(self._dtype.scalar).reshape(self._shape)
        self._array.copy_to(words, self._stream)


class CudaImages(Images):
    """Images of a CUDA device: their formats, and how they are created and filled.

    Parameters
    ----------
    cupy
        The module CuPy.
    stream
        Stream for copies.
    largest
        Largest width and height in texels.
    translated
        Returns a context manager that converts errors of CuPy.
    """

    def __init__(
        self, cupy: Any, stream: Any, largest: tuple[int, int], translated: Translated
    ) -> None:
        """Keep the stream on which images are copied."""
        super().__init__(largest, translated)
        self._cupy, self._stream = cupy, stream

    def _format_refusal(self, dtype: DType) -> str | None:
        if dtype.lanes in _CHANNELS and 8 * dtype.scalar.itemsize in _BITS:
            return None
        return (
            f"CUDA has no image format for {dtype.name}; it has those of 1, 2 or 4 channels of 8, "
            "16 or 32 bits"
        )

    def _new(self, problem: Problem, dtype: DType) -> CudaImage:
        return CudaImage(self._cupy, self._stream, problem, dtype)

    def _fill(self, image: CudaImage, array: npt.NDArray[Any]) -> None:
        with self._stream:
            image.copy_from(self._cupy.asarray(array))
            self._stream.synchronize()
