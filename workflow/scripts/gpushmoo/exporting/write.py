"""Write a run's results in the formats that other programs read, completely or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import __name__ as library
from .. import __version__
from ..analysis.aggregate import opened
from ..analysis.run_quality import dataset_provenance
from ..core.errors import BadParquetError, ExportError, OpenedError
from ..core.names import several
from ..registry import extras
from ..storage.dataset import SAMPLES, partitions, place_of_products, read_cells
from ..storage.room import output
from ..storage.wholefile import replaced_folder, write_atomic, write_json
from .choices import Choice, ExportGroup, choices, groups_of
from .export_format import Chosen, Format
from .formats import C_HEADER, CPP_HEADER, c_header, choices_json, cpp_header, entries
from .vocabulary import t4_metadata

CHOICES_FILE = "choices.json"
_LONGEST = 200
# Snakemake leaves this in every folder that a rule makes.
_BESIDE = {".snakemake_timestamp"}


class _Header(Format):
    """The recommended launches for C and C++."""

    files = (C_HEADER, CPP_HEADER)

    def finish(self, chosen: Chosen) -> None:
        about = _about(self.run, t4_metadata(chosen.provenance))
        lines = entries(chosen.choices)
        write_atomic(self.folder / C_HEADER, c_header(lines, about).encode())
        write_atomic(self.folder / CPP_HEADER, cpp_header(lines, about).encode())


class _Json(Format):
    """The recommended launches as JSON."""

    files = (CHOICES_FILE,)

    def finish(self, chosen: Chosen) -> None:
        content = choices_json(chosen.choices, chosen.left_out, self.run, chosen.provenance)
        write_json(self.folder / CHOICES_FILE, content)


def all_formats() -> dict[str, type[Format]]:
    """Return the formats by name: those of the core, and those of extras."""
    added = {name: get() for e in extras().values() for name, get in e.formats.items()}
    return {"header": _Header, "json": _Json, **added}


@dataclass(frozen=True)
class Exported:
    """The files written below `folder`, and sentences on the groups that were left out."""

    folder: Path
    files: tuple[Path, ...]
    notes: tuple[str, ...]


def export_run(dataset: Path, run: str, out: Path, say: Callable[[str], None]) -> None:
    """Call `write_exports` for all formats; pass the sentences on left-out groups to `say`."""
    for sentence in write_exports(dataset, run, out).notes:
        say(sentence)


def write_exports(
    dataset: Path, run: str, out: Path, formats: Sequence[str] | None = None
) -> Exported:
    """Write `dataset`, called `run`, to the folder `out`, in place of earlier files.

    By default it writes all `formats`.

    Raises
    ------
    ExportError
        For unknown formats, a folder with other files in it, or nothing to export.
    BadParquetError
        If the data set is damaged.
    OSError
        If there is no space.
    """
    there = all_formats()
    formats = [*(there if formats is None else dict.fromkeys(formats))]
    unknown = [name for name in formats if name not in there]
    if unknown or not formats:
        named = f"'{unknown[0]}' is unknown" if unknown else "the list is empty"
        raise ExportError(f"formats: {named}; use one or more of {', '.join(there)}.")
    _refuse_foreign(out, [file for form in there.values() for file in form.files])
    with replaced_folder(out) as fresh:
        asked = [there[name](fresh, run) for name in formats]
        notes = _fill(asked, dataset, run)
        files = sorted(p.relative_to(fresh) for p in fresh.rglob("*") if p.is_file())
        if out.is_dir():
            stale = shutil.ignore_patterns(*(name for form in asked for name in form.files))
            shutil.copytree(out, fresh, dirs_exist_ok=True, ignore=stale)
    return Exported(out, tuple(out / file for file in files), tuple(notes))


def _refuse_foreign(out: Path, ours: Iterable[str]) -> None:
    """Raise ExportError unless `out` may be replaced: not there, empty, or only has `ours`."""
    if out.exists() and not out.is_dir():
        raise ExportError(f"'{out}' is a file; name a folder.")
    others = sorted({path.name for path in out.glob("*")} - _BESIDE.union(ours))
    if others:
        raise ExportError(
            f"'{out}' contains '{others[0]}', which no export wrote; name a folder that is new or "
            "empty, or that of an earlier export."
        )


def _fill(formats: Sequence[Format], dataset: Path, run: str) -> list[str]:
    """Write all files; return sentences on groups that are left out or cannot be replayed."""
    writing = _Writing(run, formats)
    for where in partitions(dataset):
        can_win = []
        for group in groups_of(read_cells(dataset, where)):
            name = writing.add(group)
            if name is not None and group.ok:
                # The samples are most of a group, and choices do not need them.
                light = replace(group, cells=group.cells.drop(columns=list(SAMPLES)))
                can_win.append((name.removesuffix(".json"), light))
        writing.choose(can_win)
    writing.refuse_nothing()
    writing.finish(dataset_provenance(dataset))
    return writing.notes


@dataclass
class _Writing:
    """An unfinished export: files of each group are written at once, shared files at the end."""

    run: str
    formats: Sequence[Format]
    found: list[Choice] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    # Variants of each kernel without launch parameters, as keys.
    bare: dict[str, dict[str, None]] = field(default_factory=dict)
    # Sentences as keys, which keeps their order and drops repetitions.
    unverified: dict[str, None] = field(default_factory=dict)
    limited: dict[str, None] = field(default_factory=dict)

    @property
    def left_out(self) -> list[str]:
        """Sentences on groups that are not exported."""
        if not self.bare:
            return [*self.unverified]
        whole = "; ".join(f"{kernel} ({', '.join(own)})" for kernel, own in self.bare.items())
        return [f"Left out, having no launch parameters: {whole}.", *self.unverified]

    @property
    def notes(self) -> list[str]:
        """Sentences on groups that are left out or cannot be replayed."""
        return [*self.left_out, *self.limited]

    def add(self, group: ExportGroup) -> str | None:
        """Write a group's own files; return their name, or None if it has no launch parameters."""
        if not group.axes:
            self.bare.setdefault(group.key["kernel"], {})[group.key["variant"]] = None
            return None
        name = _file_name(group, self.names)
        for form in self.formats:
            self.limited |= dict.fromkeys(form.add(name, group))
        if not group.ok:
            counts = sorted(Counter(group.cells["status"]).items())
            statuses = ", ".join(f"{count} {status}" for status, count in counts)
            self.unverified[f"{group.name}: no launch was verified ({statuses})."] = None
        return name

    def choose(self, named: Sequence[tuple[str, ExportGroup]]) -> None:
        """Choose launches for groups with verified cells, each given with the stem of its files."""
        groups = [group for _, group in named]
        self.found += choices(groups)
        for form in self.formats:
            form.choose(named)

    def refuse_nothing(self) -> None:
        """Raise ExportError if there is nothing to export in one of the formats."""
        if not self.names:
            raise ExportError(
                f"'{self.run}' has no cell with launch parameters: nothing to export."
            )
        if any(form.needs_choice for form in self.formats) and not self.found:
            raise ExportError(f"'{self.run}' has no verified launch to choose: {self.left_out[-1]}")
        if len(self.formats) == 1:
            self.formats[0].refuse_nothing()

    def finish(self, provenance: Sequence[dict[str, Any]]) -> None:
        """Write the files of all groups together."""
        chosen = Chosen(self.found, self.left_out, provenance)
        for form in self.formats:
            form.finish(chosen)


def _file_name(group: ExportGroup, taken: set[str]) -> str:
    """Return a name for the files of a group, unlike those in `taken`, and add it there."""
    parts = [str(group.key[c]) for c in ("kernel", "variant", "dtype")]
    parts += [group.problem.replace(" ", "-"), str(group.key["device_name"])]
    # File systems limit names to 255 bytes, and some ignore the case of letters.
    stem = re.sub("[^A-Za-z0-9_-]+", "-", "-".join(parts))[:_LONGEST].strip("-")
    tries = (stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 3)))
    name = next(name for name in tries if name.lower() not in taken)
    taken.add(name.lower())
    return f"{name}.json"


def _about(run: str, measured_by: Mapping[str, Any]) -> list[str]:
    """Return the comment at the top of both headers."""
    requirements = ", ".join(measured_by["metadata"]["environment"]["requirements"])
    return [
        f"Launch parameters by measurement: run {run}, exported by {library} {__version__}.",
        f"Measured with {requirements}.",
        "Among launches that lose at most 1 % more than the best for a class of sizes, gpushmoo",
        "chooses the one closest to 256 threads: other runs agree on it more often. GB/s = 10^9",
        "bytes read and written per second, with the 95 % prediction interval for another run (for",
        "one repeat: the interval of its median). Extra times have an interval, and its least",
        "confidence. In cache: all bytes fit the device's last cache. In memory: at least four",
        "times as many.",
        "This file is generated: change the measurement, not this file.",
    ]


def export(
    run: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    formats: str | Sequence[str] | None = None,
) -> Exported:
    """Write a run's recommended launches and results in the formats that other programs read.

    Parameters
    ----------
    run : path
        A run's folder, a data set or a folder of shards.
    out : path
        Folder to write to. Files of an earlier export in other formats stay. By default ``export``
        in the folder of the run or saved sweep, or in the current folder for recorded shards.
    formats : list of str
        ``header`` (the recommended launches for C and C++), ``json`` (the same), and those of
        extras: ``t4`` (the auto-tuning community's form), ``kernel-tuner`` (its cache files),
        ``vllm`` (tables by size, as vLLM and Hugging Face load them), ``triton`` (files of its
        autotuner's cache). By default all.

    Returns
    -------
    Exported
        The `folder`, its `files`, and `notes` on groups that were left out.

    Raises
    ------
    ExportError
        For an unknown format, a folder with other files, or nothing to export. It is a ValueError
        with one sentence.
    """
    place = Path(run).expanduser()
    asked = None if formats is None else several(formats)
    target = place_of_products(place) / "export" if out is None else Path(out).expanduser()
    try:
        with output(target, ExportError), opened(place) as source:
            return write_exports(source.dataset, source.name, target, asked)
    except (OpenedError, BadParquetError) as err:
        raise ExportError(str(err)) from err
