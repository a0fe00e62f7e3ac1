"""What ``chapters.tesla_c1060`` of a configuration may hold."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from gpushmoo.core.keys import Axis, Section, Unique
from pydantic import Field

# Side of a square array, in elements.
Side = Annotated[int, Field(ge=32, le=4096)]
Sides = Annotated[tuple[Side, ...], Field(min_length=1), Unique]
Blocks = Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(min_length=1), Unique]


class Simulate(Section):
    """A simulated device, and what of it is computed."""

    levels: Annotated[
        tuple[Literal["bus", "partitions", "banks"], ...], Field(min_length=1), Unique
    ]
    """Levels of detail, each adding to the one before; banks needs the device file's section of
    that name."""
    sizes: Sides | None = None
    """Square problem sizes in elements of the figure over the number of blocks; null leaves it
    out."""
    num_partition: Axis | None = None
    """Numbers of persistent blocks of that figure."""
    measured: bool = False
    """Whether measured cells of the device of this name are predicted and compared."""


class Tables(Section):
    """The document's tables 1 and 4 to 6 as predictions."""

    sizes: Sides
    """Square sizes in elements."""
    num_partition: Blocks
    """Numbers of persistent blocks."""


class Search(Section):
    """The joint search over machines that show what survives of the document."""

    sizes: Sides
    """Square sizes in elements."""
    latency_cycles: Annotated[
        tuple[Annotated[int, Field(ge=1, le=100_000)], ...],
        Field(min_length=1, max_length=1000),
        Unique,
    ]
    """Memory latencies, core cycles."""


class Tiles(Section):
    """Tiles of other widths than a partition's, simulated."""

    size: Side
    """Side of a square array, in elements."""
    row_bytes: Annotated[
        tuple[Annotated[int, Field(ge=4, le=65536)], ...], Field(min_length=1), Unique
    ]
    """Widths of a tile's row in bytes."""
    pad_bytes: Annotated[
        tuple[Annotated[int, Field(ge=0, le=65536)], ...], Field(min_length=1), Unique
    ]
    """Bytes between the rows of the array."""
    num_partition: Blocks
    """Numbers of persistent blocks."""


class Options(Section):
    """The options of this chapter, each of which may be left out."""

    FORMERLY: ClassVar = {"simulate_anew": "rerun_simulation"}

    simulate: dict[str, Simulate | None] | None = None
    """Simulated devices by name of their file in the chapter's devices/; null leaves one out, or
    all."""
    rerun_simulation: bool = False
    """Whether results without a measurement are computed even if reports/recorded/ has them."""
    tables: Tables | None = None
    """The document's tables 1 and 4 to 6 as predictions; null leaves them out."""
    search: Search | None = None
    """The joint search over machines that show what survives of the document; null leaves it
    out."""
    tiles: Tiles | None = None
    """Tiles of other widths than a partition's, simulated; null leaves them out."""
    figures: bool = False
    """Whether the document's figures are drawn and its numbers computed from this device."""
