"""The library as other programs import it: no clone around it, no Snakemake beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import gpushmoo
from conftest import python
from gpushmoo.core.paths import PACKAGE

PROGRAM = """
import sys
for name in ("snakemake", "typst", "jinja2", "numba", "threadpoolctl"):
    sys.modules[name] = None  # whoever imports it is refused
import gpushmoo
loaded = {n for n in sys.modules if n.startswith("gpushmoo.")}
print(gpushmoo.__file__, sorted(loaded))
print(*[getattr(gpushmoo, name).__name__ for name in gpushmoo.__all__])
"""


def test_it_is_imported_from_any_folder_without_what_the_workflow_needs(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "gpushmoo", ignore=shutil.ignore_patterns("__pycache__"))
    done = python(PROGRAM, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.stdout.splitlines() == [
        f"{tmp_path}/gpushmoo/__init__.py []",
        " ".join(gpushmoo.__all__),
    ], done.stderr
