"""Reads a kernel's source file, ``kernel.cu`` or ``kernel.cl``, for the backend to compile."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import BuildError


def kernel_source(folder: Path, suffix: str) -> str:
    """The text of the kernel's ``kernel.cu`` or ``kernel.cl``.

    Raises BuildError where there is none, and where it cannot be read as UTF-8.
    """
    path = folder / f"kernel{suffix}"
    if not path.is_file():
        there = ", ".join(sorted(p.name for p in folder.glob("kernel.*"))) or "none"
        raise BuildError(
            f"Kernel '{folder.name}' has no {path.name}, which this run's backend compiles; its "
            f"sources: {there}",
            "",
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as err:
        line = err.object[: err.start].count(b"\n") + 1
        raise BuildError(f"{path.name}, line {line}: not UTF-8; save it as that.", "") from err
    except OSError as err:
        raise BuildError(f"{path.name} cannot be read ({err.strerror}).", "") from err
