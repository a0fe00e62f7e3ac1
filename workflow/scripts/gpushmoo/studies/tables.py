"""What the tables of all studies have alike: how a row begins, and what the file says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from .. import __version__
from ..core.backends import BACKENDS
from ..core.space import Cell
from ..workloads.loader import KernelFolder


def cell_columns(cell: Cell, folders: Mapping[str, KernelFolder]) -> dict[str, Any]:
    """What a row says of its cell, by column; `folders` are the kernels' by name."""
    read, written = folders[cell.kernel].workload.bytes_moved(cell)
    return {
        "cell_key": cell.key,
        "kernel": cell.kernel,
        "dtype": cell.dtype,
        "variant": cell.variant,
        "height": cell.problem.height,
        "width": cell.problem.width,
        "cache_state": cell.cache_state,
        "params": params_words(cell),
        "bytes_read": read,
        "bytes_written": written,
    }


def params_words(cell: Cell) -> str:
    """The launch parameters: ``block_x=32 block_y=8``."""
    return " ".join(f"{name}={value}" for name, value in cell.params)


def study_facts(
    study: str, folders: Mapping[str, KernelFolder], backend: str, why: str | None
) -> dict[str, Any]:
    """Metadata of a study's file; `why` is what was in the way of measuring, if anything was."""
    suffix = BACKENDS[backend].source_suffix
    return {
        "study": study,
        "gpushmoo": __version__,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "why": why,
        "kernel_digests": {name: folder.digest(suffix) for name, folder in folders.items()},
    }
