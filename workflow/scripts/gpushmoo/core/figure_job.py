"""A job that draws a figure of measured cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .paths import ROOT


@dataclass(frozen=True, kw_only=True)
class FigureJob:
    """Everything but code and cells that a figure depends on.

    Parameters
    ----------
    folder
        The kernel's folder, relative to the project's if it is inside.
    view
        Name of the kernel's view that is drawn.
    where
        Columns of a data set, and the value that shown cells have there.
    dtypes
        Element types of the sweep.
    controls
        Variants that measure a cost and cannot be chosen.
    named
        Columns that titles name, because the run has several of their values.
    nearest
        A size that follows the device, as JSON has it. The figure shows the nearest measured one.
        None if `where` has the size, or the figure shows all.
    """

    folder: str
    view: str
    where: Mapping[str, Any]
    dtypes: Sequence[str]
    controls: Sequence[str]
    named: Sequence[str]
    nearest: Any = None

    @property
    def plain(self) -> dict[str, Any]:
        """The job as JSON has it: Snakemake compares it."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> Self:
        """Return the job that `plain` gave."""
        return cls(**values)

    @property
    def kernel_folder(self) -> Path:
        """The path of the kernel's folder."""
        return ROOT / self.folder
