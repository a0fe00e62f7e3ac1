"""Damage to files of a run's results, and file systems of their own under its folders."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from judge import products
from mounts import Mount, fill
from strikes import Strike
from sweeps import RUN

# Of a file system in memory that is to run full.
SMALL = "size=2m"


@dataclass(frozen=True)
class Damage:
    """What was done to `path`; `digest` is of what stands there since, None for nothing."""

    path: Path
    strike: Strike
    digest: str | None
    text: str

    @property
    def is_left(self) -> bool:
        """Whether the file still is as the strike left it."""
        return digest_of(self.path) == self.digest


def digest_of(path: Path) -> str | None:
    """SHA-256 of a file, None where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def damage(results: Path, strike: Strike, other_cells: Path) -> Damage | None:
    """Damage or replace a file of `results`; None where there is none that fits.

    `other_cells` holds shards of another configuration under the same names.
    """
    if strike.kind == "hidden temporary file":
        return _leave_temporary(results, strike)
    part = "cells" if strike.kind in _SWAPS else strike.place
    files = [p for p in products(results) if _part(p, results) == part]
    if strike.kind in _SWAPS:
        files = [p for p in files if (other_cells / p.relative_to(results / "cells")).is_file()]
    if not files:
        return None
    path = files[int(strike.draw * len(files))]
    before = path.stat()
    if strike.kind in _SWAPS:
        text = _SWAPS[strike.kind](path, files, other_cells / path.relative_to(results / "cells"))
    else:
        text = _damage_bytes(path, strike)
    if strike.keeps_time and path.exists():
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return Damage(path, strike, digest_of(path), f"{path.relative_to(results)}: {text}")


def _part(path: Path, results: Path) -> str:
    """The first folder, or ``report`` for what lies beside the folders."""
    parts = path.relative_to(results).parts
    return parts[0] if len(parts) > 1 else "report"


def _damage_bytes(path: Path, strike: Strike) -> str:
    raw = path.read_bytes()
    match strike.kind:
        case "truncated to 0":
            kept = b""
        case "truncated to half":
            kept = raw[: len(raw) // 2]
        case "last byte cut off":
            kept = raw[:-1]
        case "bytes appended":
            kept = raw + b"\0" * 16
        case "bit flipped":
            # Another draw than the file's: the same file is hit at many places.
            place = int((strike.draw * 7919) % 1 * len(raw))
            flipped = bytes([raw[place] ^ (1 << int(strike.draw * 1e6) % 8)]) if raw else b""
            kept = raw[:place] + flipped + raw[place + 1 :]
        case _:
            path.unlink()
            return strike.kind
    # In place: no other name of the file escapes.
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(kept)
    return f"{strike.kind}, {len(raw)} bytes before"


def _replace(path: Path, files: list[Path], other: Path) -> str:
    shutil.copyfile(other, path)
    return "replaced by the shard of another configuration"


def _exchange(path: Path, files: list[Path], other: Path) -> str:
    partner = files[(files.index(path) + 1) % len(files)]
    mine, its = path.read_bytes(), partner.read_bytes()
    path.write_bytes(its)
    partner.write_bytes(mine)
    return f"exchanged with {partner.name}"


_SWAPS: dict[str, Callable[[Path, list[Path], Path], str]] = {
    "shard of another configuration": _replace,
    "shards exchanged": _exchange,
}


def _leave_temporary(results: Path, strike: Strike) -> Damage | None:
    """Half of a product under the name that a killed writer would have left it under."""
    files = products(results)
    if not files:
        return None
    path = files[int(strike.draw * len(files))]
    left = path.with_name(f".{path.name}.elsewhere.4711.00000000000000000000000000000000")
    left.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return Damage(left, strike, digest_of(left), f"{left.relative_to(results)}: left")


class FileSystems:
    """File systems of their own under folders of the results, undone at the end of a round."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._mount = Mount()
        self._elsewhere: list[Path] = []

    def put(self, place: str, as_link: bool) -> str:
        """Let `place` be a mount, or a link to another file system; its content moves there."""
        folder = self._results / place
        kept = Path(tempfile.mkdtemp(prefix="gpushmoo-chaos-", dir=_other_file_system()))
        if folder.is_symlink() or folder in self._mount:
            kept.rmdir()
            return f"{place} is one already"
        if folder.is_dir():
            shutil.copytree(folder, kept, dirs_exist_ok=True)
        self._elsewhere.append(kept)
        if as_link or self._mount.refusal(folder, SMALL):
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.symlink_to(kept)
            return f"{place} is a link to another file system"
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        return f"{place} is a mount"

    def fill(self) -> Path | None:
        """Fill the mounted ``cells`` to the last byte; the file to remove, None without a mount."""
        folder = self._results / "cells"
        if folder not in self._mount and not self._can_mount(folder):
            return None
        filler = folder / "filler"
        fill(filler)
        return filler

    def _can_mount(self, folder: Path) -> bool:
        return not folder.is_symlink() and self.put("cells", as_link=False).endswith("a mount")

    def undo(self) -> None:
        """Unmount, and remove what the links led to."""
        self._mount.undo()
        for folder in self._elsewhere:
            shutil.rmtree(folder, ignore_errors=True)
        for place in self._results.glob("*"):
            if place.is_symlink():
                place.unlink()
        self._elsewhere = []


def _other_file_system() -> str | None:
    """A folder on another file system than the temporary one, where there is such."""
    shared = Path("/dev/shm")
    return str(shared) if os.access(shared, os.W_OK) else None


def results_of(root: Path) -> Path:
    """Where the run under attack leaves its results."""
    return root / "results" / RUN
