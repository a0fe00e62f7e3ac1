"""How far runs of one and the same thing were found to lie apart, for each device, in a file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..storage.wholefile import write_whole
from .errors import CompareError
from .levels import levels_of, usual_spreads
from .runs import RunCells
from .spreads import Spreads

FOLDER = "known_spreads"


@dataclass(frozen=True)
class KnownSpreads:
    """Spreads by kind, in words what they were found from, and of how many devices."""

    spreads: dict[str, Spreads]
    words: str
    devices: int


def file_name(device: str) -> str:
    """``nvidia-h200.json`` for ``NVIDIA H200``."""
    return "-".join(re.findall("[a-z0-9]+", device.lower())) + ".json"


def known_spreads(run: RunCells) -> KnownSpreads | None:
    """Those that come with the library for the run's device; None where nobody measured them."""
    names = set(run.cells["device_name"])
    if len(names) != 1:
        return None
    file = files(__package__).joinpath(FOLDER, file_name(names.pop()))
    if not file.is_file():
        return None
    return read_spreads(json.loads(file.read_text(encoding="utf-8")))


def read_spreads(told: Mapping[str, Any]) -> KnownSpreads:
    """Variances between runs of the same thing, from the JSON that `write_spreads` wrote.

    Their words say how many runs and devices they rest on. Raises KeyError on other JSON.
    """
    spreads = {kind: Spreads.from_plain(value) for kind, value in told["kinds"].items()}
    words = (
        f"{told['runs']} runs of one and the same thing on {told['devices']} "
        f"{told['device_name']} ({told['measured']})"
    )
    return KnownSpreads(spreads, words, told["devices"])


def write_spreads(runs: Sequence[RunCells], folder: Path) -> Path:
    """Write how far `runs` of one and the same thing, two or more, lie apart; the file.

    Raises CompareError when they are of several device models.
    """
    names = {name for run in runs for name in run.cells["device_name"]}
    if len(names) != 1:
        raise CompareError(f"The runs are of {len(names)} device models; name runs of one.")
    name = names.pop()
    days = sorted(shard["written_at"][:10] for run in runs for shard in run.provenance)
    found = usual_spreads(levels_of(runs))
    told = {
        "device_name": name,
        "devices": len({device for run in runs for device in run.devices}),
        "runs": len(runs),
        "measured": days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}",
        "kinds": {kind: spreads.as_plain() for kind, spreads in found.items()},
    }
    file = folder / file_name(name)
    write_whole(file, (json.dumps(told, indent=1) + "\n").encode())
    return file
