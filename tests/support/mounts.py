"""File systems in memory, mounted for a test."""

import contextlib
import subprocess
from pathlib import Path

import pytest


class Mount:
    """Small file systems in memory, until the test's end."""

    def __init__(self) -> None:
        self._folders: list[Path] = []

    def __call__(self, folder: Path, options: str) -> None:
        """Mount one at `folder`, or change the one that is there; skips the test that cannot."""
        again = "remount," if folder in self._folders else ""
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", again + options, "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a file system in memory cannot be mounted here: {done.stderr.strip()}")
        if not again:
            self._folders.append(folder)

    def undo(self) -> None:
        """Unmount all folders in reverse order."""
        for folder in reversed(self._folders):
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write until there is no room left."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
