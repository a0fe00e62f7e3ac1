"""Where the program is that finds change points, which has an environment of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

PROGRAM = "otava"
INSTALL = "python3 -m venv otava-env && otava-env/bin/pip install apache-otava==0.8.0"


class NoOtavaError(ValueError):
    """The program is not there; one sentence."""


def find_otava(program: str | None = None) -> str:
    """The program's path, of that name or path or, by default, on the PATH. Raises NoOtavaError."""
    found = shutil.which(str(Path(program).expanduser()) if program else PROGRAM)
    if found is None:
        where = f"'{program}' is no program" if program else f"'{PROGRAM}' is not on the PATH"
        raise NoOtavaError(
            f"{where}; change points need Apache Otava in an environment of its own: {INSTALL}, "
            "and then otava-env/bin/otava is the program to name."
        )
    return found
