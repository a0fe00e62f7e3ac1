"""What Python and the digests keep of each module, made once for all processes that tests start."""

import compileall
import shutil
import sys
from pathlib import Path
from unittest import mock

from gpushmoo.core.paths import ROOT
from gpushmoo.planning.digest import code_digest, keep_read_code

FOLDERS = tuple(ROOT / name for name in ("workflow/scripts", "kernels", "reports/chapters"))


def compile_modules() -> None:
    """Keep byte code and digests beside the modules, also where Python was told to keep none.

    Tests start some hundred processes in copies of the project; to compile all anew and to read it
    for the digests was a third of what each took.
    """
    for folder in FOLDERS:
        compileall.compile_dir(folder, quiet=2)
    with mock.patch.object(sys, "dont_write_bytecode", False):
        for script in (p for folder in FOLDERS for p in folder.rglob("*.py")):
            code_digest(script)
        keep_read_code()


def copy_compiled(root: Path) -> None:
    """Copy what is kept, Numba's as well, to the copy of the project at `root`.

    It is taken where the source is of the same time.
    """
    for folder in FOLDERS:
        for kept in folder.rglob("__pycache__/*.*"):
            copied = root / kept.relative_to(ROOT)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(kept, copied)
