"""Writes the folder of a new kernel: a real one, with a remark for a newcomer at every line."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path

from ..planning.config_schema import ConfigError

# Stands for the new name in the template's files.
_NAME = "my_kernel"
# A file of the template that is no Python module of the library.
_AS_TEXT = ".txt"
_CONFIG = "my_kernel.yaml"


def write_kernel(name: str, parent: Path) -> tuple[Path, Path]:
    """Make ``parent/name`` with its sources, and beside it a configuration that sweeps it.

    Both paths. Raises ConfigError for a name that cannot be one, and where either exists.
    """
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,63}", name) or keyword.iskeyword(name):
        raise ConfigError(
            f"name: '{name}' cannot be a kernel's; it must be a letter and then letters, digits "
            "and '_', 64 at most, and no word of Python."
        )
    folder, config = parent / name, parent / f"{name}.yaml"
    for path in (folder, config):
        if path.exists():
            raise ConfigError(f"name: '{path}' exists already; choose another name.")
    try:
        folder.mkdir(parents=True)
        for item in (files(__package__) / "template").iterdir():
            text = item.read_text(encoding="utf-8").replace(_NAME, name)
            out = folder / item.name.removesuffix(_AS_TEXT)
            if item.name == _CONFIG:
                out = config
            out.write_text(text, encoding="utf-8")
    except OSError as err:
        raise ConfigError(f"--in: '{folder}' cannot be written ({err.strerror}).") from err
    return folder, config
