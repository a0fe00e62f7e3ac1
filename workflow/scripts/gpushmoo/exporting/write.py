"""Writes a run's results in the forms that other programs read, whole or not at all."""

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
from ..storage.wholefile import replaced_folder, write_json, write_whole
from .choices import Choice, ExportGroup, choices, groups_of
from .form import Chosen, Format
from .formats import C_HEADER, CPP_HEADER, c_header, choices_json, cpp_header, entries
from .vocabulary import t4_metadata

CHOICES_FILE = "choices.json"
_LONGEST = 200
# Snakemake leaves this in every folder that a rule makes.
_BESIDE = {".snakemake_timestamp"}


class _Header(Format):
    """The launches to use for C and C++."""

    files = (C_HEADER, CPP_HEADER)

    def finish(self, chosen: Chosen) -> None:
        about = _about(self.run, t4_metadata(chosen.provenance))
        lines = entries(chosen.choices)
        write_whole(self.folder / C_HEADER, c_header(lines, about).encode())
        write_whole(self.folder / CPP_HEADER, cpp_header(lines, about).encode())


class _Json(Format):
    """The launches to use as JSON."""

    files = (CHOICES_FILE,)

    def finish(self, chosen: Chosen) -> None:
        content = choices_json(chosen.choices, chosen.left_out, self.run, chosen.provenance)
        write_json(self.folder / CHOICES_FILE, content)


def all_formats() -> dict[str, type[Format]]:
    """The formats by name: those of the core, and those of extras."""
    added = {name: get() for e in extras().values() for name, get in e.formats.items()}
    return {"header": _Header, "json": _Json, **added}


@dataclass(frozen=True)
class Exported:
    """The files written below `folder`; sentences on what was left out."""

    folder: Path
    files: tuple[Path, ...]
    notes: tuple[str, ...]


def export_run(dataset: Path, run: str, out: Path, say: Callable[[str], None]) -> None:
    """`write_exports` in all formats; `say` gets the sentences on what was left out."""
    for sentence in write_exports(dataset, run, out).notes:
        say(sentence)


def write_exports(
    dataset: Path, run: str, out: Path, formats: Sequence[str] | None = None
) -> Exported:
    """Write `dataset`, called `run`, to the folder `out`, in place of earlier files.

    By default it writes all `formats`.

    Raises ExportError, one sentence: unknown formats, a folder with something else in it, nothing
    to export. Raises BadParquetError for a damaged data set, OSError (no space).
    """
    there = all_formats()
    formats = [*(there if formats is None else dict.fromkeys(formats))]
    unknown = [name for name in formats if name not in there]
    if unknown or not formats:
        named = f"'{unknown[0]}' is none" if unknown else "none was named"
        raise ExportError(f"formats: {named}; there are {', '.join(there)}.")
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
            f"'{out}' holds '{others[0]}', which is of no export; name a folder that is new or "
            "empty, or that of an earlier export."
        )


def _fill(formats: Sequence[Format], dataset: Path, run: str) -> list[str]:
    """Write all files; sentences on what is left out or not replayed."""
    writing = _Writing(run, formats)
    for where in partitions(dataset):
        can_win = []
        for group in groups_of(read_cells(dataset, where)):
            name = writing.add(group)
            if name is not None and group.ok:
                # The samples are most of a group, and no choice needs them.
                light = replace(group, cells=group.cells.drop(columns=list(SAMPLES)))
                can_win.append((name.removesuffix(".json"), light))
        writing.choose(can_win)
    writing.refuse_nothing()
    writing.finish(dataset_provenance(dataset))
    return writing.notes


@dataclass
class _Writing:
    """An export in the making: the files of each group are written at once, others at the end."""

    run: str
    formats: Sequence[Format]
    found: list[Choice] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    # Variants of each kernel without launch parameters, as keys.
    bare: dict[str, dict[str, None]] = field(default_factory=dict)
    # Sentences as keys: in order, and each once.
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
        """Sentences on what is left out or cannot be replayed."""
        return [*self.left_out, *self.limited]

    def add(self, group: ExportGroup) -> str | None:
        """Write a group's own files; their name, or None if it has no launch parameters."""
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
        """Choose launches of groups that have verified ones; each with its file's stem."""
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
    """A name for the files of a group, unlike those in `taken`, which it joins."""
    parts = [str(group.key[c]) for c in ("kernel", "variant", "dtype")]
    parts += [group.problem.replace(" ", "-"), str(group.key["device_name"])]
    # No file system has more than 255 bytes; some take capitals for small letters.
    stem = re.sub("[^A-Za-z0-9_-]+", "-", "-".join(parts))[:_LONGEST].strip("-")
    tries = (stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 3)))
    name = next(name for name in tries if name.lower() not in taken)
    taken.add(name.lower())
    return f"{name}.json"


def _about(run: str, measured_by: Mapping[str, Any]) -> list[str]:
    """What is on top of both headers."""
    requirements = ", ".join(measured_by["metadata"]["environment"]["requirements"])
    return [
        f"Launch parameters by measurement: run {run}, exported by {library} {__version__}.",
        f"Measured with {requirements}.",
        "Of launches that lose little in a class of sizes, the plainest was taken: other runs",
        "name it more often. GB/s = 10^9 bytes read and written in a second, with the 95 %",
        "interval of what another run may find, or of that run where it has one repeat. Longer by",
        "how much: with an interval, and how sure that is at least. In cache: all bytes fit the",
        "device's last cache; in memory: they are at least four times as many. Made by a program:",
        "change the measurement, not this file.",
    ]


def export(
    run: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    formats: str | Sequence[str] | None = None,
) -> Exported:
    """Write what a run has found in the forms that other programs read.

    Parameters
    ----------
    run : path
        A run's folder, a data set or a folder of shards.
    out : path
        The folder; of an earlier export there the files of other formats stay. By default
        ``export`` in the folder of the run or saved sweep, or here for recorded shards.
    formats : list of str
        ``header`` (the launches to use, for C and C++), ``json`` (the same), and those of extras:
        ``t4`` (the auto-tuning community's form), ``kernel-tuner`` (its cache files), ``vllm``
        (tables by size, as vLLM and Hugging Face load them), ``triton`` (files of its autotuner's
        cache). By default all.

    Returns
    -------
    Exported
        The `folder`, its `files`, and `notes` on what was left out.

    Raises
    ------
    ExportError
        A ValueError of one sentence.
    """
    place = Path(run).expanduser()
    asked = None if formats is None else several(formats)
    target = place_of_products(place) / "export" if out is None else Path(out).expanduser()
    try:
        with output(target, ExportError), opened(place) as source:
            return write_exports(source.dataset, source.name, target, asked)
    except (OpenedError, BadParquetError) as err:
        raise ExportError(str(err)) from err
