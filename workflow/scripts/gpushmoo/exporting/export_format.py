"""Define the contract of an export format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..storage.wholefile import write_atomic
from .choices import Choice, ExportGroup


@dataclass(frozen=True)
class Chosen:
    """The choices of a run, sentences on kernels without a choice, and the shards' provenance."""

    choices: Sequence[Choice]
    left_out: Sequence[str]
    provenance: Sequence[dict[str, Any]]


class Format:
    """Writer of the files of one format. A subclass overrides the steps that it needs.

    Attributes
    ----------
    files
        Names, directly in the folder, of the files and folders that the format writes. An export
        never replaces other files there.
    needs_choice
        Whether the format writes nothing for a run without a verified launch.

    Parameters
    ----------
    folder
        Folder of the export.
    run
        Name of the run.
    """

    files: ClassVar[Sequence[str]]
    needs_choice: ClassVar[bool] = True

    def __init__(self, folder: Path, run: str) -> None:
        self.folder = folder
        self.run = run

    def add(self, name: str, group: ExportGroup) -> Sequence[str]:
        """Write the files of a group, `name` or similar; return sentences on their limits."""
        return ()

    def choose(self, named: Sequence[tuple[str, ExportGroup]]) -> None:
        """Take the groups of a kernel that have verified launches, with the stems of their files.

        They have no samples.
        """

    def refuse_nothing(self) -> None:
        """Raise ExportError if the format alone is asked for and has nothing to write."""

    def finish(self, chosen: Chosen) -> None:
        """Write the files of all groups together."""


def write_object(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object on one line with its keys in order; it may contain all cells."""
    write_atomic(path, (json.dumps(content, allow_nan=False) + "\n").encode())
