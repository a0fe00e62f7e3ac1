"""What ``chapters.streamed_dot`` of a configuration may hold."""

from __future__ import annotations

from typing import Annotated

from gpushmoo.core.keys import MAX_VALUE, Section, Text, Unique, Value
from pydantic import Field

Length = Annotated[int, Field(ge=64, le=MAX_VALUE)]
Lengths = Annotated[tuple[Length, ...], Unique]


class Timeline(Section):
    """A cell of a streamed kernel that is drawn over time."""

    kernel: Text
    """The kernel whose run is traced: dot_streamed or dot_square."""
    dtype: str
    """The element type of both arrays: float or double."""
    variant: str
    """The variant of the kernel, such as pinned-pooled."""
    size: Annotated[int, Field(ge=1, le=MAX_VALUE)]
    """The number of elements of each array."""
    axes: dict[str, Value]
    """One value of each of its launch parameters."""


class Errors(Section):
    """Data on which every way of computing a dot product is compared with the exact one."""

    sizes: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MAX_VALUE)], ...], Field(min_length=1), Unique
    ]
    """Numbers of elements of vectors whose values are uniform from 0 to 1."""
    conditions: Annotated[tuple[Annotated[float, Field(ge=2, le=1e25)], ...], Unique]
    """Condition numbers of ill-conditioned vectors."""
    condition_size: Length
    """Length of the ill-conditioned vectors."""


class Rivals(Section):
    """Lengths at which ways on the host and on the device are timed in rounds by one process."""

    lengths: Lengths
    """Lengths at which every way on the host meets every way on the device."""
    share_lengths: Lengths
    """Lengths at which shares of the host are compared."""
    parameter_lengths: Lengths
    """Lengths at which each of the document's parameters is changed alone."""
    between: Lengths
    """Powers of two; lengths from each up to twice as much are compared."""
    rounds: Annotated[int, Field(ge=6, le=1000)]
    """How often each way has its turn."""


class Options(Section):
    """The options of this chapter, each of which may be left out."""

    timeline: dict[str, Timeline | None] | None = None
    """Cells of streamed kernels whose copies and kernels are drawn over time, each by a name that
    you choose."""
    errors: Errors | None = None
    """Data on which every way of computing a dot product is compared with the exact one."""
    rivals: Rivals | None = None
    """Lengths at which ways on the host and on the device are timed in rounds by one process."""
    recorded: Text | None = None
    """Folder of recorded studies, beside a recorded dataset; null for none."""
