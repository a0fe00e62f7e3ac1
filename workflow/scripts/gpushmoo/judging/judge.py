"""What files of other tuners show: which configurations are tied, and what they cannot tell.

Samples of one configuration were taken one after the other in one process. Clocks rise and fall in
the meantime, so that these are no independent samples: the first part is left out as warm-up, and
blocks of successive samples are what is replicated. How far another process would lie off no such
file tells; tied sets are therefore rather too small.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import __name__ as library
from ..analysis.best import tied_best
from ..analysis.fastest import params_texts
from ..analysis.statistics import (
    SHARING_CELLS,
    Floats,
    half_widths,
    normal_quantile,
    replicated,
    run_spreads,
    t_quantile,
)
from ..comparing.compare import DELTA, Comparison, compare_runs, percent
from ..comparing.runs import KEY, RunCells, read_run
from ..core.display import seconds, tied_words
from ..core.median import CONFIDENCE, coverage_of
from ..core.schema import DERIVED, GROUP, TAKEN, Flag, Number, Small, Status, Table, Text, is_axis
from . import JudgeError
from .readers import Configuration, FileGroup, read_groups

Place = str | os.PathLike[str]
# Samples are split into so many blocks, if each has two at least; the first is the warm-up.
BLOCKS = 8
# With fewer samples there is no interval.
LEAST_SAMPLES = 4
# Beyond it, blocks are one and the same.
_MOST_ALIKE = 0.8
# Columns beside those of a run: the file's own figure, how many samples it tells of, and whether an
# interval is known.
PUBLISHED, COUNT, KNOWN = (f"{DERIVED}{name}" for name in ("published", "count", "known"))


def blocks_of(samples: Floats) -> Floats:
    """Blocks of successive samples, without the warm-up: (configurations, blocks, samples)."""
    n = samples.shape[1]
    size = max(1, n // BLOCKS if n >= 2 * BLOCKS else n // (BLOCKS // 2))
    count = n // size - 1
    return samples[:, n - count * size :].reshape(len(samples), count, size)


def centres(blocks: Floats) -> tuple[Floats, Floats]:
    """Log times of configurations, by their `blocks`, and half of their 95 % intervals."""
    logs = np.log(np.median(blocks, axis=2))
    alike = ["all"] * len(logs)
    found = replicated([logs], alike)
    spreads = run_spreads([found])
    assert spreads is not None
    none = np.zeros(len(logs))
    own, _ = half_widths(logs.shape[1], found.own, none, alike, spreads)
    return logs.mean(axis=1), own * math.sqrt(_widening(logs))


def _widening(logs: Floats) -> float:
    """By how much neighbouring blocks that resemble each other raise the variance of a mean.

    (1 + r) / (1 - r), as in a series of first order; r is the mean over configurations, without the
    bias of short series (Marriott and Pope, Biometrika 41, 1954).
    """
    n = logs.shape[1]
    rest = logs - logs.mean(axis=1, keepdims=True)
    # What all do alike, such as to slow down as the device gets warm, favours none.
    rest -= np.median(rest, axis=0)
    rest = rest[(rest**2).sum(axis=1) > 0.0]
    if n < LEAST_SAMPLES or len(rest) < SHARING_CELLS:
        return 1.0
    r = float(np.mean((rest[:, 1:] * rest[:, :-1]).sum(axis=1) / (rest**2).sum(axis=1)))
    r = min(max((n * r + 1.0) / (n - 3.0), 0.0), _MOST_ALIKE)
    return float((1.0 + r) / (1.0 - r))


def run_of(groups: Sequence[FileGroup], path: Path) -> RunCells:
    """Groups of a file as a run that can be compared, with PUBLISHED, the file's own figures."""
    cells = pd.concat([_table(group) for group in groups], ignore_index=True)
    cells = cells.drop_duplicates(KEY, keep="last").set_index(KEY, drop=False)
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
    told = {
        "protocol_version": groups[0].format,
        "written_at": written,
        "params": {"folder": "", "dtype": "", "measure": {}},
        "controls": [],
    }
    return RunCells(path.name, cells.rename_axis([None, None]).sort_index(), [told])


def _table(group: FileGroup) -> pd.DataFrame:
    """The group's configurations with the columns by which runs are compared."""
    table = pd.DataFrame([_row(group, c) for c in group.configurations])
    lengths = table["samples_s"].str.len().where(table["status"] == Status.OK, 0)
    for n in set(lengths) - set(range(LEAST_SAMPLES)):
        places = np.flatnonzero(lengths == n)
        blocks = blocks_of(np.array(table["samples_s"].iloc[places].tolist()))
        middle, half = centres(blocks)
        kept = [*blocks.reshape(len(blocks), -1)]
        # As many standard errors as the interval of so many samples has.
        errors = half / normal_quantile(CONFIDENCE) * normal_quantile(coverage_of(len(kept[0])))
        for column, values in (
            ("median_s", np.exp(middle)),
            ("own_low_s", np.exp(middle - half)),
            ("own_high_s", np.exp(middle + half)),
            ("within_half_width", errors),
            ("samples_s", pd.Series(kept, places)),
            ("repeat_samples", pd.Series([[len(kept[0])]] * len(kept), places)),
        ):
            table.loc[places, column] = values
        table.loc[places, KNOWN] = True
    return table.assign(median_low_s=table["own_low_s"], median_high_s=table["own_high_s"])


def _row(group: FileGroup, of: Configuration) -> dict[str, Any]:
    half, known, count = 0.0, False, of.count or 0
    if not of.samples_s and count > 1 and not math.isnan(of.deviation_s):
        half = float(t_quantile(np.array(count - 1.0))) * of.deviation_s / math.sqrt(count)
        known = True
    samples = list(of.samples_s) or [of.time_s]
    params = [f"{name}={value}" for name, value in sorted(of.params.items())]
    unknown = ("memcpy_gbs", "bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs")
    return {
        **dict.fromkeys(("dtype", "cache_state", "device_uuid", "message"), ""),
        **dict.fromkeys(("height", "width"), 0),
        **dict.fromkeys(unknown, math.nan),
        "kernel": group.kernel,
        "variant": group.problem,
        "timing_mode": group.format,
        "device_name": group.device,
        "cell_key": "|".join([group.kernel, group.problem, *params]),
        "status": of.status,
        "median_s": of.time_s,
        "own_low_s": of.time_s - half,
        "own_high_s": of.time_s + half,
        "within_half_width": half / of.time_s,
        "samples_s": samples,
        "repeat_samples": [len(samples)],
        "repeat_medians_s": [of.time_s],
        "repeat_memcpy_gbs": [math.nan],
        PUBLISHED: of.time_s,
        COUNT: count,
        KNOWN: known,
        **{f"{name}_" if name in TAKEN else name: value for name, value in of.params.items()},
    }


class JudgedGroup(Table):
    """A group of configurations in a file."""

    file: Text  # its name, or that of a run
    format: Text  # whose form the file has
    kernel: Text
    problem: Text  # what the configurations compete in
    device_name: Text
    configurations: Small  # configurations that the file has
    timed: Small  # those of them that have a time
    samples: Small  # the fewest samples of one of these
    winner: Text  # the fastest one's parameters
    winner_s: Number  # [s] its median
    tied: Small | None  # how many are statistically tied with it; null where nothing tells it
    near: Small  # how many are within the threshold of it
    published: Text  # the fastest one by the file's own figure
    published_tied: Flag | None  # whether that is among the tied; null where nothing tells it
    halves_agree: Flag | None  # whether both halves of the samples name the same; null of few
    cannot_tell: list[Text]  # what the file leaves open


@dataclass(frozen=True)
class Judgement:
    """What was found in files.

    `rows` has the columns of JudgedGroup. `comparison` is that with earlier files, if such were
    named.
    """

    rows: pd.DataFrame
    threshold: float
    comparison: Comparison | None = None

    def __str__(self) -> str:
        parts = ["\n".join(self._lines(row)) for row in self.rows.to_dict("records")]
        if self.comparison is not None:
            parts.append(self.comparison.markdown().rstrip())
        return "\n\n".join(parts)

    def _lines(self, row: Mapping[str, Any]) -> list[str]:
        names = (row["file"], row["kernel"], row["problem"], row["device_name"])
        n, near = row["timed"], f"{row['near']} within {percent(self.threshold, sign=False)}"
        if row["tied"] is None:
            words = f"the fastest of {n}; nobody can say how many are statistically tied with it"
        else:
            words = tied_words(row["tied"], n)
        lines = [
            ", ".join(filter(None, names)),
            f"  {words}; {near}",
            f"  the fastest: {row['winner'] or 'it'} ({seconds(row['winner_s'])})",
        ]
        if row["published"] != row["winner"]:
            how = {True: "which is tied", False: "which is not tied", None: ""}[
                row["published_tied"]
            ]
            told = ", ".join(filter(None, [row["published"], how]))
            lines.append(f"  the file's own figure names another: {told}")
        if row["halves_agree"] is False:
            lines.append("  the two halves of its samples name different ones")
        if row["cannot_tell"]:
            lines.append(f"  the file cannot tell: {'; '.join(row['cannot_tell'])}")
        return lines


def judge(
    files: Sequence[Place],
    *,
    before: Sequence[Place] = (),
    noise_runs: Sequence[Place] = (),
    problem: Collection[str] = (),
    threshold: float = DELTA,
) -> Judgement:
    """Say what results of other tuners show, and what they cannot tell.

    Parameters
    ----------
    files : list of paths
        Kernel Tuner's cache files, T4, nvbench's JSON, Triton's ``*.autotune.json``, each also
        gzipped, or folders of runs.
    before : list of paths
        As many earlier files, against which they are held (`compare`).
    noise_runs : list of paths
        Two or more files of one and the same thing, which tell how far files lie apart.
    problem : list of str
        Axes of nvbench that are the problem's, not the launch's.
    threshold : float
        The change that does not matter, a share of the time.

    Returns
    -------
    Judgement
        With `rows` (a data frame) and `comparison`.

    Raises
    ------
    JudgeError, CompareError
        ValueErrors of one sentence.
    """
    if not 0.0 < threshold < 1.0:
        raise JudgeError(f"threshold is {threshold}; it must be a share between 0 and 1.")
    read = [_read(Path(file).expanduser(), problem) for file in files]
    rows = [row for run, notes in read for row in _rows(run, notes, threshold)]
    comparison = None
    if before:
        first, same = (
            [_read(Path(file).expanduser(), problem)[0] for file in some]
            for some in (before, noise_runs)
        )
        comparison = compare_runs(first, [run for run, _ in read], same, threshold)
    return Judgement(pd.DataFrame(rows).astype(object), threshold, comparison)


Notes = Mapping[tuple[str, str, str], Sequence[str]]


def _read(path: Path, problem: Collection[str]) -> tuple[RunCells, Notes]:
    """A file, or a run's folder, as a run; and what it leaves open by group."""
    if path.is_dir():
        return read_run(path), {}
    groups = read_groups(path, problem)
    return run_of(groups, path), {(g.kernel, g.problem, g.device): g.notes for g in groups}


def _rows(run: RunCells, notes: Notes, threshold: float) -> Iterator[dict[str, Any]]:
    for key, cells in run.cells.reset_index(drop=True).groupby([*GROUP], sort=True):
        ok = cells[cells["status"] == Status.OK]
        if ok.empty:
            continue
        group = dict(zip(GROUP, key, strict=True))
        foreign = PUBLISHED in ok
        fastest = ok.loc[ok["median_s"].idxmin()]
        tied = tied_best(ok)
        known = bool(ok[KNOWN].all()) if foreign else True
        published = ok.loc[ok[PUBLISHED].idxmin()] if foreign else fastest
        varied = [c for c in ok if not is_axis(c) or ok[c].nunique() > 1]
        names = params_texts(ok[varied] if len(ok) > 1 else ok)
        size = f"{group['height']} x {group['width']}" if group["height"] else ""
        words = (group["dtype"], group["variant"], size, group["cache_state"])
        counts = ok[COUNT] if foreign else ok["samples_s"].str.len()
        left = notes.get((group["kernel"], group["variant"], group["device_name"]), ())
        yield {
            "file": run.name,
            "format": group["timing_mode"] if foreign else library,
            "kernel": group["kernel"],
            "problem": ", ".join(filter(None, words)),
            "device_name": group["device_name"],
            "configurations": len(cells),
            "timed": len(ok),
            "samples": int(counts.min()),
            "winner": names[fastest.name],
            "winner_s": float(fastest["median_s"]),
            "tied": len(tied) if known else None,
            "near": int((ok["median_s"] <= (1.0 + threshold) * fastest["median_s"]).sum()),
            "published": names[published.name],
            "published_tied": published["cell_key"] in set(tied["cell_key"]) if known else None,
            "halves_agree": _halves_agree(ok),
            "cannot_tell": [*left, *_open_questions(ok, foreign, known, int(counts.min()))],
        }


def _open_questions(ok: pd.DataFrame, foreign: bool, known: bool, samples: int) -> Iterator[str]:
    if not known:
        told = f"{samples} samples" if samples else "no number of samples"
        yield f"which are tied ({told} a configuration)"
    elif foreign and (ok["samples_s"].str.len() < LEAST_SAMPLES - 1).any():
        yield "whether samples drift (it holds only their number and deviation)"
    if foreign:
        yield "how far another process would lie off"
    elif ok["repeat_medians_s"].str.len().max() < 2:
        yield "how far another run would lie off (there was one repeat)"


def _halves_agree(ok: pd.DataFrame) -> bool | None:
    """Whether both halves of the samples have the same fastest; None with too few of them."""
    lengths = ok["samples_s"].str.len()
    if lengths.min() < 2 * LEAST_SAMPLES:
        return None
    halves = [
        [np.median(samples[: len(samples) // 2]), np.median(samples[len(samples) // 2 :])]
        for samples in ok["samples_s"]
    ]
    first, second = np.argmin(halves, axis=0)
    return bool(first == second)
