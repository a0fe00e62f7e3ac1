"""Where the project's own folders lie."""

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
# Runs' folders lie in it, from the working directory on.
RESULTS = Path("results")
# A process that is to import the library, kernels or chapters needs these in its PYTHONPATH.
IMPORTED = (PACKAGE.parent, KERNELS, CHAPTERS)


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
