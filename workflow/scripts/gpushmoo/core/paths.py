"""Locate the folders of the project."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

# Folder of the library `gpushmoo`.
PACKAGE = Path(__file__).resolve().parents[1]
# Folder of the Snakefile, which need not be the working directory.
ROOT = PACKAGE.parents[2]
# Default configuration, over which a user's is merged.
DEFAULTS = ROOT / "config" / "config.yaml"
# Folders of packages: code shared between kernels, and chapters.
KERNELS = ROOT / "kernels"
CHAPTERS = ROOT / "reports" / "chapters"
# Folder of the runs' folders, relative to the working directory.
RESULTS = Path("results")
# Folders of PYTHONPATH from which the library, kernels and chapters are imported.
IMPORTED = (PACKAGE.parent, KERNELS, CHAPTERS)


def child_environment() -> dict[str, str]:
    """Return this process's environment with paths to import the library, kernels and chapters."""
    paths = [*map(str, IMPORTED), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def install(extra: str) -> str:
    """Return the command that adds an extra of the package to this clone or environment."""
    return f"make {extra}" if (ROOT / "Makefile").is_file() else f"pip install 'gpushmoo[{extra}]'"


def cache_folder(results: Path) -> Path:
    """Return the folder for caches of a run's device runtimes; HOME may not be writable."""
    return results / ".cache"


def expose_imports(folders: Iterable[Path]) -> None:
    """Let this process, and processes that it starts, import from `folders` as well."""
    for folder in map(str, folders):
        if folder not in sys.path:
            sys.path.append(folder)
        lent = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if folder not in lent:
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*lent, folder]))
