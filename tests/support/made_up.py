"""Adds the made-up backend of `experiments/backends`, with two devices, to a library's copy."""

from __future__ import annotations

import shutil
from pathlib import Path

from conftest import ROOT

_ENTRY = '        Backend("madeup", ".np", "store", True, claims_gpu=True),\n'


def add_made_up(library: Path) -> None:
    """Make ``backend: madeup`` known to the library in this folder, the package itself."""
    shutil.copytree(ROOT / "experiments/backends/madeup", library / "devices/madeup")
    registry = library / "core/backends.py"
    opencl = '        Backend(\n            name="opencl"'
    before, after = registry.read_text().split(opencl)
    registry.write_text(f"{before}{_ENTRY}{opencl}{after}")
