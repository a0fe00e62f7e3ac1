"""Measure all kernels of two checkouts, wheels or git revisions alternately on one device."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import pandas as pd

from ..comparing.compare import DELTA, change, group_words, markdown_table
from ..comparing.verdicts import PairedChange, judged
from ..core.display import number_of, one_line
from ..core.errors import ConfigError, NoDeviceError, UserError, raises_at_caller
from ..core.names import several
from ..core.schema import Status
from ..storage.temporary import OwnFolder
from ..workloads.loader import far_import, included, shared_code, source_files
from .ab import ABTest, PairArguments, ab, versions_of
from .arguments import checked

# Pairs of cells of an element type by default; a kernel may have thousands.
PAIRS = 32
# Arguments of `ab` that have no schema.
_UNCHECKED = ("variant_a", "variant_b", "options_a", "options_b", "progress")
# Launches that the text names one by one; the rest is in `cells`.
_MAX_CELLS = 5


@raises_at_caller
def ab_checkouts(
    base: str | os.PathLike[str],
    head: str | os.PathLike[str] | None = None,
    *,
    kernels: str | Sequence[str] = (),
    unchanged: bool = False,
    pairs: int = PAIRS,
    threshold: float = DELTA,
    **asked: Any,
) -> Checkouts:
    """Measure each kernel that two checkouts share alternately, as `ab` does.

    A kernel is skipped if none of its files differs. If a kernel cannot be measured, the others are
    measured nevertheless.

    Parameters
    ----------
    base, head : path or text
        A folder, a wheel, or a revision of the git repository in the working directory. Without
        `head`, the folder of that repository, including uncommitted changes.
    kernels : list of str
        Names of kernels, or folders in both checkouts, by default all kernels.
    unchanged : bool
        Whether to measure unchanged kernels as well. No change should be found for them.
    pairs : int
        Largest number of pairs of an element type, drawn by the seed.
    threshold, **asked
        Arguments of `ab`. ``variant_a``, ``variant_b``, ``options_a`` and ``options_b`` are the
        fields of each kernel's versions.

    Returns
    -------
    Checkouts
        With `cells`, `groups`, `slower`, `failed` and `markdown`.

    Raises
    ------
    ConfigError
        If an argument is wrong. It is a ValueError.
    NoDeviceError
        If no device can be used.
    """
    asked |= {"pairs": pairs, "threshold": threshold}
    kernels = several(kernels)
    # What is wrong for all kernels is refused before one is measured.
    checked({name: value for name, value in asked.items() if name not in _UNCHECKED}, PairArguments)
    with _opened(base) as (a, name_a), _opened(head) as (b, name_b):
        first, second = kernel_folders(a), kernel_folders(b)
        for name in kernels:
            if not any(_is_named(name, place) for place in first | second):
                raise ConfigError(f"kernels: neither side has '{name}'.")
        every = sorted(
            p for p in first | second if not kernels or any(_is_named(k, p) for k in kernels)
        )
        both = [place for place in every if place in first and place in second]
        if not both:
            raise ConfigError(f"'{name_a}' and '{name_b}' have no kernel in common.")
        alone = [p for p in every if p not in second], [p for p in every if p not in first]
        found = Checkouts((name_a, name_b), threshold, alone)
        for place in both:
            if far := far_import(first[place], a) or far_import(second[place], b):
                found.failed[place] = f"workload.py imports '{far}', which is not beside it."
                continue
            if not unchanged and not differ(first[place], second[place]):
                found.unchanged.append(place)
                continue
            try:
                more = dict(asked)
                sides = versions_of(first[place], second[place], more)
                found.add(place, ab(*sides, **more))
            except NoDeviceError:
                raise
            except UserError as err:
                found.failed[place] = str(err)
    return found


@contextmanager
def _opened(side: str | os.PathLike[str] | None) -> Iterator[tuple[Path, str]]:
    """Yield the folder of a checkout, wheel or git revision, and its name for messages."""
    if side is None:
        yield Path(_git("rev-parse", "--show-toplevel")), "the working tree"
        return
    path = Path(side).expanduser()
    name = os.fspath(side)
    if path.is_dir():
        yield path.resolve(), name
        return
    with OwnFolder() as place:
        folder = Path(place).resolve() / "checkout"
        if path.suffix == ".whl" and path.is_file():
            try:
                with ZipFile(path) as wheel:
                    wheel.extractall(folder)
            except BadZipFile as err:
                raise ConfigError(f"'{name}' is not a wheel ({err}).") from err
            yield folder, path.name
            return
        try:
            commit = _git(
                "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
            )
        except ConfigError as err:
            raise ConfigError(
                f"'{name}' is not a folder, a wheel or a revision of the git repository here."
            ) from err
        _git("-c", "core.hooksPath=/dev/null", "worktree", "add", "--detach", str(folder), commit)
        try:
            yield folder, f"{name} ({commit[:8]})"
        finally:
            with suppress(ConfigError):
                _git("worktree", "remove", "--force", str(folder))


def _git(*words: str) -> str:
    """Return the output of a git command, or raise ConfigError."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, encoding="utf-8", check=True)
    except (OSError, subprocess.CalledProcessError) as err:
        said = getattr(err, "stderr", None) or str(err)
        raise ConfigError(f"git {words[0]}: {one_line(said, 200)}") from err
    return done.stdout.strip()


def kernel_folders(root: Path) -> dict[str, Path]:
    """Return the folders of all kernels below `root`, by relative path.

    Kernels in hidden folders and in virtual environments are skipped.
    """
    found = {p.parent.relative_to(root).as_posix(): p.parent for p in root.rglob("workload.py")}
    apart = [p.parent.relative_to(root).as_posix() for p in root.rglob("pyvenv.cfg")]
    return {
        place: folder
        for place, folder in found.items()
        if not f"/{place}".count("/.") and not any(place.startswith(f"{a}/") for a in apart)
    }


def _is_named(name: str, place: str) -> bool:
    """Return whether `name` is the kernel at this path, or a folder that contains it."""
    asked, path = PurePosixPath(name), PurePosixPath(place)
    return name == path.name or path.is_relative_to(asked)


def differ(a: Path, b: Path) -> bool:
    """Return whether two versions of a kernel differ, in its files or in modules that it imports.

    A kernel that includes a file from outside its folder always counts as different.

    Parameters
    ----------
    a, b
        Folders of the kernel in both checkouts.
    """
    files = [{p.relative_to(f).as_posix(): p.read_bytes() for p in source_files(f)} for f in (a, b)]
    if files[0] != files[1] or shared_code(a) != shared_code(b):
        return True
    return any(".." in name for text in files[0].values() for name in included(text))


@dataclass
class Checkouts:
    """Result of comparing the kernels of two checkouts, by the kernel's path in them.

    Attributes
    ----------
    names
        Names of both checkouts.
    threshold
        Relative change that does not matter.
    alone
        Kernels that only the first checkout has, and those that only the second has.
    tests
        Results of the measured kernels.
    unchanged
        Kernels that were not measured, because no file differs.
    failed
        For each kernel without any measured launch, the reason.
    """

    names: tuple[str, str]
    threshold: float
    alone: tuple[list[str], list[str]]
    tests: dict[str, ABTest] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, place: str, test: ABTest) -> None:
        """Record the measurement of a kernel, which counts as failed if no pair of cells is ok.

        Parameters
        ----------
        place
            Path of the kernel in the checkouts.
        test
            The measurement.
        """
        self.tests[place] = test
        if not (test.cells["status"] == Status.OK).any():
            self.failed[place] = "{status}: {message}".format(**test.cells.iloc[0])

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Pairs of all kernels, as in `ABTest`, with the kernel's path in a column ``kernel``.

        The test treats the pairs of all kernels as one family, so verdicts may differ from those of
        a single kernel.
        """
        return _together(self.tests, "cells")

    @cached_property
    def groups(self) -> pd.DataFrame:
        """Groups of all kernels, as in `ABTest`, with verdicts from one test of all groups."""
        return _together(self.tests, "groups")

    @property
    def slower(self) -> list[str]:
        """Kernels that are significantly slower by more than the threshold, in a pair or group."""
        beyond = (set(rows.loc[rows["beyond"], "kernel"]) for rows in (self.cells, self.groups))
        return sorted(set().union(*beyond))

    def markdown(self) -> str:
        """Return a summary for a pull request, which ends in a line break."""
        devices = dict.fromkeys(test.device.name for test in self.tests.values())
        rows = [
            [_words(r), str(r["pairs"]), change(r), f"{(m := '**' * r['beyond'])}{r['verdict']}{m}"]
            for r in _first(self.groups)
        ]
        margin = f"{100 * self.threshold:g} %"
        slow = self.slower
        measured = number_of(len(self.tests.keys() - self.failed), "measured kernel")
        failed = f" {len(self.failed)} not measured." if self.failed else ""
        parts = [
            f"## {', '.join([' → '.join(self.names), *devices])}",
            f"**{len(slow) or 'None'} of {measured} significantly slower by more than {margin}"
            f"{': ' if slow else ''}{', '.join(slow)}.{failed}**",
            markdown_table(["all launches of", "pairs", "change", "verdict"], rows) if rows else "",
            "\n".join(f"* {line}" for line in self._remarks()),
            "Both sides are sampled alternately in one process. A change is that of a launch's "
            f"time, with its 95 % interval; *same* is within ±{margin}. Verdicts hold for all "
            "kernels together.",
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _remarks(self) -> Iterator[str]:
        slow = _first(self.cells[self.cells["beyond"]])
        for row in slow[:_MAX_CELLS]:
            launch = ", ".join(f"{name}={row[name]}" for name in self.tests[row["kernel"]].axes)
            yield f"{_words(row)}, {launch}: {change(row)}"
        if len(slow) > _MAX_CELLS:
            yield f"{len(slow) - _MAX_CELLS} more such launches"
        for why in dict.fromkeys(self.failed.values()):
            alike = ", ".join(place for place, other in self.failed.items() if other == why)
            yield f"Not measured: {alike}: {one_line(why, 300)}"
        told = {"Unchanged": self.unchanged}
        told |= {f"Only in {n}": keys for n, keys in zip(self.names, self.alone, strict=True)}
        yield from (f"{what}: {', '.join(keys)}" for what, keys in told.items() if keys)


def _first(rows: pd.DataFrame) -> list[dict[Any, Any]]:
    """Return the rows, first the significantly slower groups, then those that slowed down most."""
    return [*rows.sort_values(["beyond", "change"], ascending=False).to_dict("records")]


def _words(row: Mapping[str, Any]) -> str:
    variants = dict.fromkeys((row["variant_a"], row["variant_b"]))
    return group_words({**row, "variant": " → ".join(variants)})


def _together(tests: Mapping[str, ABTest], name: str) -> pd.DataFrame:
    """Return the rows of all kernels, with verdicts from one test of all of them."""
    if not tests:
        none = pd.DataFrame(columns=["kernel", "status", "change", "verdict", "beyond"])
        return none.astype({"beyond": bool})
    frames = {place: getattr(test, name) for place, test in tests.items()}
    rows = pd.concat(frames, names=["kernel"]).reset_index("kernel").reset_index(drop=True)
    # A parameter that other kernels do not have stays a whole number.
    axes = {axis for test in tests.values() for axis in test.axes if axis in rows}
    rows = rows.astype(dict.fromkeys(axes, "Int64"))
    known = rows["verdict"].notna()
    told = rows.loc[known, "change":"p_beyond"].to_numpy(float)
    found = judged([PairedChange(*np.log1p(of[:3]), *of[3:]) for of in told])
    verdicts = pd.DataFrame(found, rows.index[known], ["verdict", "beyond"])
    rows["verdict"] = verdicts["verdict"].map(str)
    rows["beyond"] = verdicts["beyond"].reindex(rows.index).eq(True)
    return rows
