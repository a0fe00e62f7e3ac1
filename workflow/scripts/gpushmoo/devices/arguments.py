"""Whether the arguments of a launch are what its kernel takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.errors import LaunchFailedError
from ..workloads.contract import Argument, BufferRef, SurfaceRef, TextureRef
from .buffers import Image


def named(argument: BufferRef | TextureRef | SurfaceRef, buffers: Mapping[str, Any]) -> Any:
    """The buffer or image that an argument names. Raises LaunchFailedError where it is none."""
    if argument.name not in buffers:
        there = ", ".join(sorted(buffers)) or "none"
        raise LaunchFailedError(
            f"an argument names the buffer '{argument.name}'; there are: {there}"
        )
    found = buffers[argument.name]
    if isinstance(argument, BufferRef) and isinstance(found, Image):
        raise LaunchFailedError(
            f"'{argument.name}' is an image; pass it by TextureRef or SurfaceRef"
        )
    if not isinstance(argument, BufferRef) and not isinstance(found, Image):
        raise LaunchFailedError(f"'{argument.name}' is a buffer and no image; pass it by BufferRef")
    return found


def check_count(entry: str, args: Sequence[Argument], taken: int) -> None:
    """Raise LaunchFailedError unless these are as many arguments as the kernel `entry` takes."""
    if len(args) != taken:
        raise LaunchFailedError(
            f"kernel '{entry}' takes {taken} arguments, the launch has {len(args)}"
        )


def check_sizes(entry: str, args: Sequence[Argument], taken: Sequence[int]) -> None:
    """Raise LaunchFailedError unless the arguments fit parameters of so many bytes each.

    For a runtime that passes on whatever it is given; buffers and images are passed in 8 bytes.
    """
    check_count(entry, args, len(taken))
    for place, (argument, nbytes) in enumerate(zip(args, taken, strict=True)):
        given = argument.nbytes if isinstance(argument, np.generic) else 8
        if given != nbytes:
            raise LaunchFailedError(
                f"argument {place} of kernel '{entry}' is of {nbytes} bytes, the launch "
                f"gives {given} ({argument!r})"
            )
