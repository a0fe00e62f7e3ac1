"""What no measurement enters is the same on every machine, so the repository holds a record of it.

A recorded file's name ends in a digest of what was asked and of the code that answers. So one that
is there is what a job would make, and where code or question have changed there is none.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..core.paths import PACKAGE, ROOT
from ..simulation.request import Simulation
from .digest import product_digest

RECORD = ROOT / "reports" / "recorded"


def recorded_name(made: str, script: Path, asked: Any) -> str:
    """Name in the record of the file `made`, which a rule's `script` makes of what is `asked`."""
    told = json.dumps([product_digest(script), asked], sort_keys=True)
    path = Path(made)
    return f"{path.stem}-{hashlib.sha256(told.encode()).hexdigest()[:12]}{path.suffix}"


def asked_of(s: Simulation) -> dict[str, Any]:
    """What rules ask of a simulated device, and the device itself, as plain values."""
    return {
        "file": os.path.relpath(s.device_file, ROOT),
        "machine": repr(s.machine),
        "levels": list(s.levels),
        "sizes": list(s.sizes),
        "num_partition": s.num_partition,
    }


def simulated_constants(results: Path, simulations: Iterable[Simulation]) -> dict[str, str]:
    """The files of simulated devices, with their names in the record."""
    scripts, constants = PACKAGE.parent, {}
    for s in (s for s in simulations if s.sizes):
        made = str(results / "simulated" / f"{s.name}-blocks.parquet")
        constants[made] = recorded_name(made, scripts / "simulate.py", asked_of(s))
        for end in ("svg", "json"):
            figure = str(results / "figures" / f"simulated-{s.name}.{end}")
            drawn_by = scripts / "figure_simulated.py"
            constants[figure] = recorded_name(figure, drawn_by, constants[made])
    return constants


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
