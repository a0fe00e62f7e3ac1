"""The folders of the project itself, by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

# The folder of the library `gpushmoo`.
PACKAGE = Path(__file__).resolve().parents[1]
# The folder of the Snakefile, which need not be the working directory.
ROOT = PACKAGE.parents[2]
# The configuration over which a user's is merged.
DEFAULTS = ROOT / "config" / "config.yaml"
# What kernels share among each other, and the chapters, are packages in these.
KERNELS = ROOT / "kernels"
CHAPTERS = ROOT / "reports" / "chapters"
# Runs' folders are in it, from the working directory on.
RESULTS = Path("results")
# The folders of PYTHONPATH from which the library, kernels and chapters are imported.
IMPORTED = (PACKAGE.parent, KERNELS, CHAPTERS)


def child_environment() -> dict[str, str]:
    """This process's environment, in which a child can import the library, kernels and chapters."""
    paths = [*map(str, IMPORTED), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def install(extra: str) -> str:
    """The command that adds an extra of the package to this clone or environment."""
    return f"make {extra}" if (ROOT / "Makefile").is_file() else f"pip install 'gpushmoo[{extra}]'"


def cache_folder(results: Path) -> Path:
    """Where device runtimes of a run keep their caches; HOME may not be writable."""
    return results / ".cache"


def lend_imports(folders: Iterable[Path]) -> None:
    """Have this process, and those that it starts, import from `folders` as well."""
    for folder in map(str, folders):
        if folder not in sys.path:
            sys.path.append(folder)
        lent = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if folder not in lent:
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*lent, folder]))
