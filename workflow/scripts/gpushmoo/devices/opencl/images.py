"""Images in OpenCL (pyopencl): their formats, how they are made, and what reads them."""

from __future__ import annotations

from typing import Any

from ...core.dtypes import DType
from ...core.space import Problem
from ..guard_bands import zone_bytes

_ORDERS = {1: "R", 2: "RG", 4: "RGBA"}


def image_format(cl: Any, dtype: DType) -> Any | None:
    """The format of images of this type; None where OpenCL has none that a kernel reads as floats.

    OpenCL 1.2 has no double, and its three-channel formats are packed ones.
    """
    if dtype.lanes not in _ORDERS:
        return None
    order = getattr(cl.channel_order, _ORDERS[dtype.lanes])
    if dtype.normalised and dtype.scalar.itemsize == 1:
        return cl.ImageFormat(order, cl.channel_type.UNORM_INT8)
    if dtype.scalar.kind == "f" and dtype.scalar.itemsize == 4:
        return cl.ImageFormat(order, cl.channel_type.FLOAT)
    return None


def format_refusal(cl: Any, context: Any, dtype: DType) -> str | None:
    """Why the device has no image of this type to read and write; None when it has."""
    wanted = image_format(cl, dtype)
    known = cl.get_supported_image_formats(
        context, cl.mem_flags.READ_WRITE, cl.mem_object_type.IMAGE2D
    )
    if wanted is not None and wanted in known:
        return None
    return f"the device has no image format for {dtype.name}"


class OpenCLImage:
    """A two-dimensional image of height × width texels in the memory of the device."""

    def __init__(self, cl: Any, context: Any, problem: Problem, dtype: DType) -> None:
        """Allocate; pyopencl's errors come out as they are."""
        self._cl, self._context = cl, context
        self._region = (problem.width, problem.height)
        self.nbytes = problem.height * problem.width * dtype.itemsize
        self.handle = cl.create_image(
            context, cl.mem_flags.READ_WRITE, image_format(cl, dtype), shape=self._region
        )
        self._linear: Any = None

    def linear(self) -> Any:
        """A buffer as large as the image, for what only buffers can do; kept."""
        if self._linear is None:
            self._linear = self._cl.Buffer(
                self._context, self._cl.mem_flags.READ_WRITE, self.nbytes
            )
        return self._linear

    def copy_from(self, buffer: Any, queue: Any) -> Any:
        """Queue a copy of the whole buffer into the image; its event."""
        whole, offset = _whole(buffer)
        return self._cl.enqueue_copy(
            queue, self.handle, whole, offset=offset, origin=(0, 0), region=self._region
        )

    def copy_to(self, buffer: Any, queue: Any) -> Any:
        """Queue a copy of the whole image into the buffer; its event."""
        whole, offset = _whole(buffer)
        return self._cl.enqueue_copy(
            queue, whole, self.handle, offset=offset, origin=(0, 0), region=self._region
        )


def _whole(buffer: Any) -> tuple[Any, int]:
    """The buffer that `buffer` is a part of, if any, and where in it that part begins, in bytes.

    PoCL 3.0 ends the process when an image is copied to or from a part of a buffer.
    """
    whole = getattr(buffer, "whole", None)
    return (buffer, 0) if whole is None else (whole, zone_bytes(buffer.size))
