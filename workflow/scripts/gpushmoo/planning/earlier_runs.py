"""The earlier runs that a run is shown beside, and what its stage of history is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.otava_program import NoOtavaError, find_otava
from ..storage.packed import unpacked
from ..storage.run_folders import finished_runs, runs_in
from .config_schema import ConfigError


@dataclass(frozen=True)
class EarlierRuns:
    """Folders of the runs before this one, `otava`'s name or path, and the change not told."""

    folders: tuple[str, ...]
    otava: str | None
    delta: float


def read_earlier(raw: Mapping[str, Any], own: Path) -> EarlierRuns | None:
    """What history, otava and delta say; None where no history is asked for: ConfigError.

    A folder of runs stands for the finished ones in it, but for the run's `own` folder. Relative
    folders begin at the working directory.
    """
    asked = raw["history"]
    if asked is None:
        if raw["otava"] is not None:
            raise ConfigError("otava: it finds change points in a history, and history is null.")
        return None
    named = [asked] if isinstance(asked, str) else asked
    found = [path for name in named for path in _runs_in(name, own.parent)]
    others = (path for path in found if path.resolve() != own.resolve())
    return EarlierRuns(tuple(dict.fromkeys(map(str, others))), raw["otava"], raw["delta"])


def _runs_in(name: str, results: Path) -> list[Path]:
    """The runs that a folder stands for; in that of all `results` there may be none yet."""
    folder = Path(name).expanduser()
    if folder.resolve() == results.resolve():
        return finished_runs(folder)
    if not unpacked(folder).is_dir():
        raise ConfigError(f"history: '{name}' is not the folder of a run, of runs or of shards.")
    return runs_in(folder) if folder.is_dir() else [folder]


def refuse_without_otava(earlier: EarlierRuns) -> None:
    """Raise ConfigError, one sentence, where the program that finds change points is missing."""
    try:
        find_otava(earlier.otava)
    except NoOtavaError as err:
        raise ConfigError(f"otava: {err}") from err
