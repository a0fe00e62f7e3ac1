"""Files that cannot be used are set aside: kept to be looked at, and never averaged in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

FOLDER = "quarantine"


def set_aside(paths: Sequence[Path], run: Path) -> list[Path]:
    """Move files (or data sets) of the run's folder into its quarantine, under their paths there.

    A file that lies there already keeps its name and the new one gets a number. Files outside of
    `run` (a recorded data set) stay where they are and are not among those returned.
    """
    moved = []
    for path in paths:
        inside = path.resolve()
        if not inside.is_relative_to(run.resolve()) or not inside.exists():
            continue
        wanted = run / FOLDER / inside.relative_to(run.resolve())
        wanted.parent.mkdir(parents=True, exist_ok=True)
        target, number = wanted, 1
        while target.exists():
            number += 1
            target = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
        os.replace(inside, target)
        moved.append(target)
    return moved
