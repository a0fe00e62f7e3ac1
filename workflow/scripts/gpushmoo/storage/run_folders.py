"""Which runs lie in a folder, and where a finished one has its data set."""

from __future__ import annotations

from pathlib import Path

from ..core.run_plan import PLAN_FILE
from .dataset_seal import SUMS


def sealed_dataset(run: Path) -> Path | None:
    """The finished data set in a run's folder; None where there is none."""
    # A folder that is a mount cannot be replaced, and the data set then lies within it.
    places = (run / "dataset", run / "dataset" / "data")
    return next((place for place in places if (place / SUMS).is_file()), None)


def finished_runs(folder: Path) -> list[Path]:
    """The runs in a folder of runs that have a data set, by name; none where it is missing."""
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in inside if sealed_dataset(path)]


def runs_in(folder: Path) -> list[Path]:
    """The finished runs of a folder of runs, by name; `folder` itself where it is none."""
    if _is_run(folder):
        return [folder]
    return finished_runs(folder) if any(map(_is_run, folder.iterdir())) else [folder]


def _is_run(folder: Path) -> bool:
    """Whether the folder is a run's, finished or not, or that of a data set."""
    is_one = any((folder / name).is_file() for name in (PLAN_FILE, SUMS))
    return is_one or sealed_dataset(folder) is not None
