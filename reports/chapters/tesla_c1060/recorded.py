"""What no measurement enters is the same on every machine, so the repository holds a record of it.

A recorded file's name ends in a digest of what was asked and of the code that answers. So one that
is there is what a job would make, and where code or question have changed there is none.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpushmoo.core.paths import ROOT
from gpushmoo.planning.digest import product_digest

RECORD = ROOT / "reports" / "recorded"


def recorded_name(made: str, module: Path, asked: Any) -> str:
    """Name in the record of the file `made`, which code of `module` makes of what is `asked`."""
    told = json.dumps([product_digest(module), asked], sort_keys=True)
    path = Path(made)
    return f"{path.stem}-{hashlib.sha256(told.encode()).hexdigest()[:12]}{path.suffix}"


def found(constants: Mapping[str, str]) -> dict[str, str]:
    """Those of the files, by their place in the run's folder, that the record holds."""
    kept = {made: RECORD / name for made, name in constants.items()}
    return {made: os.path.relpath(file) for made, file in kept.items() if file.is_file()}


def replace_record(constants: Mapping[str, str]) -> None:
    """Have the record hold these files, which a run has made, and no others."""
    kept = {name: Path(made).read_bytes() for made, name in constants.items()}
    RECORD.mkdir(exist_ok=True)
    for old in RECORD.iterdir():
        if old.name not in kept:
            old.unlink()
    for name, content in kept.items():
        (RECORD / name).write_bytes(content)
