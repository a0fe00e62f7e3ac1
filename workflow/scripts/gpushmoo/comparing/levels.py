"""What is compared of runs, and how far runs of the same thing lie apart in it.

The levels are cells, each group's best, a group as a whole and the machine's own copies. All are
tables of logarithms of times with a column for each run, and are judged alike: raw, and beside the
runtime's own copy.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..analysis.statistics import (
    ChangeEstimate,
    ClassSpread,
    Floats,
    Places,
    Spreads,
    UsualVariance,
    class_spreads,
    estimate,
    replicated,
    shifts,
)
from ..core.schema import Status
from ..storage.wholefile import write_whole
from . import CompareError
from .runs import LOG_CELL, LOG_COPY, LOG_S, WITHIN, RunCells, bests, copies, wholes
from .verdicts import Booleans, Changes

CELL, BEST, WHOLE, COPY = "cell", "best", "whole", "copy"
# Ends the name of a level that is looked at beside the copy.
OVER_COPY = "_over_copy"
# Spreads that come with the library, a file for each device.
KNOWN = "known_spreads"


@dataclass(frozen=True)
class RunLevel:
    """Things in runs: a table of each run, with LOG_S, LOG_COPY and WITHIN, and the same rows."""

    name: str
    tables: Sequence[pd.DataFrame]

    @cached_property
    def classes(self) -> list[str]:
        """Of each row: things alike in their noise are of one cache state and decade of seconds."""
        first = self.tables[0]
        times = first.get(LOG_CELL, first[LOG_S]).to_numpy(np.float64)
        decades = np.floor(times / np.log(10.0)).astype(int).tolist()
        states = first["cache_state"]
        return [f"{state}, 1e{decade} s" for state, decade in zip(states, decades, strict=True)]

    @cached_property
    def raw(self) -> Floats:
        """Log times, shape (rows, runs)."""
        return np.column_stack([t[LOG_S].to_numpy(np.float64) for t in self.tables])

    @cached_property
    def copy(self) -> Floats:
        """What is added to a log time for that beside the copy; NaN where no copy was timed."""
        return np.column_stack([t[LOG_COPY].to_numpy(np.float64) for t in self.tables])


def levels_of(runs: Sequence[RunCells]) -> dict[str, RunLevel]:
    """The levels of several runs: what all of them have."""
    swept, verified = swept_by_all(runs), verified_by_all(runs)
    tables = {
        CELL: [run.ok for run in runs],
        BEST: [bests(run, swept) for run in runs],
        WHOLE: [wholes(run, verified) for run in runs],
        COPY: [copies(run) for run in runs],
    }
    found = {}
    for name, each in tables.items():
        index = _common([table.index for table in each])
        found[name] = RunLevel(name, [table.loc[index] for table in each])
    return found


def swept_by_all(runs: Sequence[RunCells]) -> pd.Index:
    """Cells that every run tried, whatever came of them."""
    return _common([run.cells.index[run.cells["status"] != Status.UNPROPOSED] for run in runs])


def verified_by_all(runs: Sequence[RunCells]) -> pd.Index:
    """Cells that are verified in every run."""
    return _common([run.ok.index for run in runs])


def _common(indices: Sequence[pd.Index]) -> pd.Index:
    """The labels that every index has, in the order of the first; cells or groups, as they are."""
    found = indices[0]
    for index in indices[1:]:
        found = found.intersection(index)
    return found


def _complete(values: Floats) -> Booleans:
    """Which rows have all their values."""
    complete: Booleans = np.all(np.isfinite(values), axis=1)
    return complete


def usual_spreads(
    levels: Mapping[str, RunLevel], without: Collection[int] = ()
) -> dict[str, Spreads]:
    """How far runs of the same thing lie apart, by level, from two or more of them.

    `without` are places of runs that shall not count.
    """
    found = {}
    for name, level in levels.items():
        runs = [i for i in range(len(level.tables)) if i not in without]
        for kind, logs in ((name, level.raw), (name + OVER_COPY, level.raw + level.copy)):
            complete = _complete(logs)
            if complete.any():
                classes = [c for c, k in zip(level.classes, complete, strict=True) if k]
                found[kind] = class_spreads(replicated([logs[complete][:, runs]], classes))
    return found


@dataclass(frozen=True)
class LevelChanges(Changes):
    """What changed from the first to the second run of each pair, at one level.

    `first` and `second` are the tables of the first pair's runs.
    """

    first: pd.DataFrame
    second: pd.DataFrame


def changes_of(
    level: RunLevel,
    usual: Mapping[str, Spreads] | None,
    by_repeats: bool,
    shift: Callable[[pd.DataFrame, pd.DataFrame], Floats] | None = None,
) -> LevelChanges:
    """The changes from the first half of a level's runs to the second, in pairs.

    See `statistics.estimate`. With `by_repeats` the repeats within a pair's two runs tell the
    spread. `shift` gives the raw changes in the place of the differences of LOG_S.
    """
    n = len(level.tables) // 2
    pairs = list(zip(level.tables[:n], level.tables[n:], strict=True))
    first, second = pairs[0]
    raw, copy = (logs[:, n:] - logs[:, :n] for logs in (level.raw, level.copy))
    if shift is not None:
        raw = np.column_stack([shift(a, b) for a, b in pairs])
    within = (first[WITHIN] + second[WITHIN]).to_numpy(np.float64) / 2.0
    estimates = [
        _estimate(
            values,
            level.classes,
            within,
            (usual or {}).get(kind),
            _repeats(pairs[0], beside) if by_repeats and level.name != COPY else [],
        )
        for kind, values, beside in (
            (level.name, raw, False),
            (level.name + OVER_COPY, raw + copy, True),
        )
    ]
    return LevelChanges(estimates[0], estimates[1], first, second)


def _estimate(
    changes: Floats,
    classes: Sequence[str],
    within: Floats,
    usual: Spreads | None,
    repeats: Sequence[Floats],
) -> ChangeEstimate:
    """As `estimate`; rows with a NaN, which have no copy, are NaN.

    `repeats` are blocks of log times of a run's repeats, which tell the spread of single pairs.
    """
    known = _complete(np.column_stack([changes, *repeats]))
    out = ChangeEstimate(*(np.full(len(known), value) for value in (np.nan, np.inf, 1.0)))
    if not known.any():
        return out
    names = [c for c, k in zip(classes, known, strict=True) if k]
    seen = None
    if changes.shape[1] > 1:
        # A change is of two runs, so that each of them has half of its variance.
        seen = replicated([changes[known] / math.sqrt(2.0)], names)
    elif repeats:
        seen = replicated([block[known] for block in repeats], names)
    found = estimate(changes[known], names, within[known], usual, seen)
    for name in ("change", "error", "df"):
        getattr(out, name)[known] = getattr(found, name)
    return out


def _repeats(pair: tuple[pd.DataFrame, pd.DataFrame], over_copy: bool) -> list[Floats]:
    """Log times of the repeats of both runs, shape (cells, repeats); none where a cell has one."""
    blocks = []
    for side in pair:
        medians = list(side["repeat_medians_s"])
        n = min(map(len, medians), default=0)
        if n < 2:
            return []
        block = np.log(np.array([values[:n] for values in medians], np.float64))
        if over_copy:
            copies = [v[:n] if len(v) >= n else np.full(n, np.nan) for v in side["repeat_copy_gbs"]]
            block = block + np.log(np.array(copies, np.float64))
        blocks.append(block)
    return blocks


def sample_shift(first: pd.DataFrame, second: pd.DataFrame) -> Floats:
    """The Hodges–Lehmann shift of each cell's log samples, the mean over its repeats.

    A repeat is held against that of the same number, where both runs have equally many.
    """
    if first.empty:
        return np.empty(0)
    sides = [_repeat_samples(side) for side in (first, second)]
    numbers = {len(counts) for _, cells in sides for counts in cells}
    if len(numbers) != 1:
        sides = [(logs, [[sum(counts)] for counts in cells]) for logs, cells in sides]
        numbers = {1}
    found = []
    for repeat in range(numbers.pop()):
        (x, n), (y, m) = (_part(logs, np.array(cells), repeat) for logs, cells in sides)
        found.append(shifts(x, n, y, m))
    mean: Floats = np.mean(found, axis=0)
    return mean


def _repeat_samples(cells: pd.DataFrame) -> tuple[Floats, list[list[int]]]:
    """Logarithms of all samples in a row, and how many each repeat of each cell has."""
    logs = np.log(np.concatenate([*cells["samples_s"]]))
    return logs, [list(counts) for counts in cells["repeat_samples"]]


def _part(logs: Floats, counts: Places, repeat: int) -> tuple[Floats, Places]:
    """The samples of one repeat of each cell, in a row, and how many they are."""
    lengths = counts.sum(axis=1)
    begins = np.cumsum(lengths) - lengths + counts[:, :repeat].sum(axis=1)
    wanted = counts[:, repeat]
    offsets = np.arange(wanted.sum()) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    return logs[np.repeat(begins, wanted) + offsets], wanted


@dataclass(frozen=True)
class KnownSpreads:
    """Spreads by level, in words what they were found from, and of how many devices."""

    spreads: Mapping[str, Spreads]
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
    file = files(__package__).joinpath(KNOWN, file_name(names.pop()))
    if not file.is_file():
        return None
    told = json.loads(file.read_text(encoding="utf-8"))
    words = (
        f"{told['runs']} runs of one and the same thing on {told['devices']} "
        f"{told['device_name']} ({told['measured']})"
    )
    spreads = {
        kind: Spreads(
            {name: _from_plain(value) for name, value in plain["classes"].items()},
            _from_plain(plain["whole"]),
        )
        for kind, plain in told["kinds"].items()
    }
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
    told = {
        "device_name": name,
        "devices": len({device for run in runs for device in run.devices}),
        "runs": len(runs),
        "measured": days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}",
        "kinds": {
            kind: {
                "classes": {str(c): _plain(s) for c, s in sorted(spreads.classes.items(), key=str)},
                "whole": _plain(spreads.whole),
            }
            for kind, spreads in usual_spreads(levels_of(runs)).items()
        },
    }
    file = folder / file_name(name)
    write_whole(file, (json.dumps(told, indent=1) + "\n").encode())
    return file


def _plain(spread: ClassSpread) -> dict[str, float | None]:
    """As JSON holds it; infinity is null."""
    df = None if math.isinf(spread.own.df) else spread.own.df
    shared = {"shared": spread.shared, "shared_df": spread.shared_df}
    return {"own": spread.own.variance, "own_df": df, **shared}


def _from_plain(value: Mapping[str, Any]) -> ClassSpread:
    df = math.inf if value["own_df"] is None else float(value["own_df"])
    return ClassSpread(UsualVariance(value["own"], df), value["shared"], value["shared_df"])
