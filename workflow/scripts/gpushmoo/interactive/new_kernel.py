"""Write the folder of a new kernel, which can be measured without changes."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path

from ..core.errors import ConfigError
from ..storage.room import output_folder

# The kernel's name in the template's files.
_NAME = "my_kernel"
# Ends a file of the template that is no Python module of the library.
_AS_TEXT = ".txt"


def write_kernel(name: str, parent: Path) -> tuple[Path, Path]:
    """Write the folder ``parent/name`` of a new kernel, and a configuration that sweeps it.

    Parameters
    ----------
    name
        Name of the kernel: a letter, then letters, digits and ``_``.
    parent
        Folder that gets both.

    Returns
    -------
    tuple
        Paths of the folder and of the configuration.

    Raises
    ------
    ConfigError
        If the name is not allowed, or if one of the paths exists.
    """
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,63}", name) or keyword.iskeyword(name):
        raise ConfigError(
            f"name: '{name}' cannot be a kernel's; it must be a letter and then letters, digits "
            "and '_', 64 at most, and no word of Python."
        )
    folder = parent / name
    config = parent / f"{name}.yaml"
    for path in (folder, config):
        if path.exists():
            raise ConfigError(f"name: '{path}' exists already; choose another name.")
    with output_folder(parent, ConfigError) as fresh:
        (fresh / name).mkdir()
        for item in (files(__package__) / "template").iterdir():
            text = item.read_text(encoding="utf-8").replace(_NAME, name)
            is_config = item.name == f"{_NAME}.yaml"
            place = config.name if is_config else Path(name, item.name.removesuffix(_AS_TEXT))
            (fresh / place).write_text(text, encoding="utf-8")
    return folder, config
