"""What Python keeps of each module, made once for all processes that tests start."""

import compileall
import shutil
from pathlib import Path

from gpushmoo.core.paths import ROOT

FOLDERS = tuple(ROOT / name for name in ("workflow/scripts", "kernels", "reports/chapters"))


def compile_modules() -> None:
    """Keep byte code beside the modules, also if Python is to keep none.

    Tests start some hundred processes in copies of the project. To compile all again in each would
    be much of the time that they take.
    """
    for folder in FOLDERS:
        compileall.compile_dir(folder, quiet=2)


def copy_compiled(root: Path) -> None:
    """Copy what is kept, Numba's as well, to the copy of the project at `root`.

    It is taken where the source is of the same time.
    """
    for folder in FOLDERS:
        for kept in folder.rglob("__pycache__/*.*"):
            copied = root / kept.relative_to(ROOT)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(kept, copied)
