"""Allocate images in the OpenCL backend, and copy them to and from buffers."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from ...core.dtypes import DType
from ...core.space import Problem
from ..capabilities import Images, Translated
from ..memory import Image, zone_bytes

_ORDERS = {1: "R", 2: "RG", 4: "RGBA"}


def image_format(cl: Any, dtype: DType) -> Any | None:
    """Return pyopencl's format for texels of this type.

    The result is None if OpenCL has no such format, as for doubles and for three channels.

    Parameters
    ----------
    cl
        The module pyopencl.
    dtype
        Type of a texel.
    """
    if dtype.lanes not in _ORDERS:
        return None
    order = getattr(cl.channel_order, _ORDERS[dtype.lanes])
    if dtype.normalised and dtype.scalar.itemsize == 1:
        return cl.ImageFormat(order, cl.channel_type.UNORM_INT8)
    if dtype.scalar.kind == "f" and dtype.scalar.itemsize == 4:
        return cl.ImageFormat(order, cl.channel_type.FLOAT)
    return None


class OpenCLImage(Image):
    """A two-dimensional image of height × width texels in the memory of the device.

    Parameters
    ----------
    cl
        The module pyopencl.
    queue
        Queue for copies.
    problem
        Height and width in texels.
    dtype
        Type of a texel.
    """

    def __init__(self, cl: Any, queue: Any, problem: Problem, dtype: DType) -> None:
        """Allocate the image. Errors of pyopencl are not converted."""
        self._cl, self._queue = cl, queue
        self._region = (problem.width, problem.height)
        self.nbytes = problem.height * problem.width * dtype.itemsize
        self.handle = cl.create_image(
            queue.context, cl.mem_flags.READ_WRITE, image_format(cl, dtype), shape=self._region
        )

    def _new_linear(self) -> Any:
        return self._cl.Buffer(self._queue.context, self._cl.mem_flags.READ_WRITE, self.nbytes)

    def copy_from(self, buffer: Any) -> Any:
        """Queue a copy of the whole buffer into the image, and return its event."""
        whole, offset = _whole(buffer)
        return self._cl.enqueue_copy(
            self._queue, self.handle, whole, offset=offset, origin=(0, 0), region=self._region
        )

    def copy_to(self, buffer: Any) -> Any:
        """Queue a copy of the whole image into the buffer, and return its event."""
        whole, offset = _whole(buffer)
        return self._cl.enqueue_copy(
            self._queue, whole, self.handle, offset=offset, origin=(0, 0), region=self._region
        )


class OpenCLImages(Images):
    """Images of an OpenCL device, see `capabilities.Images`.

    Parameters
    ----------
    cl
        The module pyopencl.
    queue
        Queue for copies.
    largest
        Largest width and height in texels.
    translated
        Returns a context manager that converts errors of pyopencl.
    """

    def __init__(
        self, cl: Any, queue: Any, largest: tuple[int, int], translated: Translated
    ) -> None:
        """Keep the queue on which images are copied."""
        super().__init__(largest, translated)
        self._cl, self._queue = cl, queue

    def _format_refusal(self, dtype: DType) -> str | None:
        wanted = image_format(self._cl, dtype)
        known = self._cl.get_supported_image_formats(
            self._queue.context, self._cl.mem_flags.READ_WRITE, self._cl.mem_object_type.IMAGE2D
        )
        if wanted is not None and wanted in known:
            return None
        return f"the device has no image format for {dtype.name}"

    def _new(self, problem: Problem, dtype: DType) -> OpenCLImage:
        return OpenCLImage(self._cl, self._queue, problem, dtype)

    def _fill(self, image: OpenCLImage, array: npt.NDArray[Any]) -> None:
        flags = self._cl.mem_flags.READ_ONLY | self._cl.mem_flags.COPY_HOST_PTR
        buffer = self._cl.Buffer(self._queue.context, flags, hostbuf=array)
        image.copy_from(buffer).wait()


def _whole(buffer: Any) -> tuple[Any, int]:
    """Return the allocation of a buffer and its offset there.

    Image copies use them, because PoCL 3.0 ends the process if it copies between an image and a
    sub-buffer.
    """
    whole = getattr(buffer, "whole", None)
    return (buffer, 0) if whole is None else (whole, zone_bytes(buffer.size))
