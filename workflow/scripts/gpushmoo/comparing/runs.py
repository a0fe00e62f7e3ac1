"""Read runs for a comparison, and estimate the spread between runs without a change.

The levels are cells, each group's best, a group as a whole, and the memcpy baselines of the
machine. Each level is a table of logarithms of times with a column for each run. All are tested in
the same way: raw, and relative to the memcpy baseline.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..analysis.aggregate import opened
from ..analysis.run_quality import dataset_provenance
from ..analysis.statistics import (
    ChangeEstimate,
    Class,
    Classes,
    ClassSpread,
    Floats,
    Places,
    Replicated,
    Spreads,
    TypicalVariance,
    class_spreads,
    estimate,
    moderated,
    normal_quantile,
    replicated,
    shifts,
)
from ..core.display import seconds
from ..core.errors import BadParquetError, CompareError, OpenedError
from ..core.median import coverage_of
from ..core.schema import DERIVED, GROUP, Status, is_axis
from ..storage.dataset import read_cells
from .verdicts import Changes

Place = str | os.PathLike[str]

# Columns of a data set that are compared, besides the axes.
_COLUMNS = (
    *GROUP,
    "cell_key",
    "status",
    "message",
    "median_s",
    "group_low_s",
    "group_high_s",
    "bandwidth_gbs",
    "memcpy_gbs",
    "samples_s",
    "repeat_samples",
    "repeat_medians_s",
    "repeat_memcpy_gbs",
    "sample_half_width",
    "device_uuid",
    "bandwidth_low_gbs",
    "bandwidth_high_gbs",
    "measured_at",
    "median_low_s",
    "median_high_s",
    "launches_per_sample",
    "overhead_s",
)
# Columns that match cells of two runs. Several device models may have measured the same key.
KEY = ["cell_key", "device_name"]
# Additional columns with logarithms: of seconds, of the copy's GB/s, of the seconds of a place's
# cells.
LOG_S, LOG_COPY, LOG_CELL = (f"{DERIVED}{name}" for name in ("log_s", "log_copy", "log_cell"))
# Cells of one such name are similarly noisy if they take similar times: a cache state, or HOST_FED
# if the host streams the data of the launches.
NOISE, HOST_FED = f"{DERIVED}noise", "host-fed"
# Variance of a log median, estimated from its samples.
WITHIN = f"{DERIVED}within"
# Share of a sample's overhead in the time of a launch: 1 / launches per sample; 0 if subtracted.
HELD = f"{DERIVED}held"
# The longest overhead of a sample that was observed: 2 to 4 µs, by kernel.
MAX_OVERHEAD_S = 5e-6
PLACE = ["kernel", "dtype", "height", "width", "cache_state", "device_name"]
CELL = "cell"
BEST = "best"
GROUP_MEAN = "group_mean"
COPY = "copy"
# Suffix of a level whose times are relative to the copy's.
OVER_COPY = "_vs_memcpy"
# Most differences of one kind that are listed.
_MAX_NAMED = 3


@dataclass(frozen=True)
class RunCells:
    """A run's cells, indexed by KEY, and the provenance of its shards."""

    name: str
    cells: pd.DataFrame
    provenance: Sequence[Mapping[str, Any]]

    @cached_property
    def ok(self) -> pd.DataFrame:
        """The verified cells, with LOG_S, LOG_COPY (NaN if no copy was timed), NOISE and WITHIN.

        LOG_COPY is the logarithm of the copy's bandwidth. So the sum of LOG_S and LOG_COPY is the
        logarithm of the cell's time relative to the copy's.
        """
        ok = self.cells[self.cells["status"] == Status.OK]
        copy = ok["memcpy_gbs"].to_numpy(np.float64, na_value=np.nan)
        logs = {LOG_S: np.log(ok["median_s"].to_numpy(np.float64)), LOG_COPY: np.log(copy)}
        noise = ok["cache_state"].astype(str).mask(ok["kernel"].isin(self._host_fed), HOST_FED)
        return ok.assign(**logs, **{NOISE: noise, WITHIN: _within_variances(ok), HELD: _held(ok)})

    @property
    def _host_fed(self) -> set[str]:
        """Names of kernels whose data the host streams."""
        fed = (shard for shard in self.provenance if shard.get("host_fed"))
        return {Path(shard["params"]["folder"]).name for shard in fed}

    @cached_property
    def repeats(self) -> int:
        """Number of repeats that every verified cell has; 0 without such a cell."""
        return min(map(len, self.ok["repeat_medians_s"]), default=0)


def device_uuids(runs: Sequence[RunCells]) -> set[str]:
    """Return the UUIDs of the devices that measured these runs."""
    return {device for run in runs for device in run.cells["device_uuid"]}


def read_run(place: Place) -> RunCells:
    """Read the cells of a run, a data set, or a folder of shards; raise CompareError on failure."""
    try:
        with opened(Path(place).expanduser()) as found:
            cells = read_cells(found.dataset)
            provenance = dataset_provenance(found.dataset)
            name = found.name
    except (OpenedError, BadParquetError) as err:
        raise CompareError(str(err)) from err
    cells = cells[[c for c in cells.columns if c in _COLUMNS or is_axis(c)]].copy()
    cells = cells.set_index(KEY, drop=False).rename_axis([None, None])
    if not cells.index.is_unique:
        raise CompareError(
            f"'{place}' has cells that several devices of one model measured; compare runs in "
            "which each cell was measured by one."
        )
    return RunCells(name, cells.sort_index(), provenance)


def _held(ok: pd.DataFrame) -> Floats:
    """Return the share of a sample's overhead in each time; 0 for launches timed one by one."""
    in_rows = (ok["cache_state"] == "warm") & (ok["timing_mode"] != "isolated")
    launches = ok["launches_per_sample"].to_numpy(np.float64, na_value=np.nan)
    held: Floats = np.where(in_rows & ok["overhead_s"].isna(), np.nan_to_num(1.0 / launches), 0.0)
    return held


def _within_variances(ok: pd.DataFrame) -> Floats:
    """Estimate the variance of each cell's log median from its samples; 0 for single samples.

    Half of the interval is a number of standard errors that depends on its confidence, and so on
    the number of samples in a repeat.
    """
    half = ok["sample_half_width"].fillna(0.0).to_numpy(np.float64)
    counts = {int(n) for each in ok["repeat_samples"] for n in each}
    errors_of = {n: float(normal_quantile(coverage_of(n))) for n in counts}
    errors = np.array([np.mean([errors_of[n] for n in each]) for each in ok["repeat_samples"]])
    variances: Floats = np.divide(half, errors, out=np.zeros_like(half), where=errors > 0.0) ** 2
    return variances


def bests(run: RunCells, of: pd.Index) -> pd.DataFrame:
    """Return the fastest verified cell of each group among the cells `of`, indexed by GROUP.

    LOG_COPY is the median over the group's cells, which were sampled with the same copies.
    """
    ok = run.ok.loc[run.ok.index.intersection(of)]
    ranked = ok.sort_values([LOG_S, "cell_key"]).drop_duplicates(list(GROUP))
    best = ranked.set_index(list(GROUP), drop=False).rename_axis([None] * len(GROUP))
    copies = ok.groupby(list(GROUP), observed=True)[LOG_COPY].median()
    return best.assign(**{LOG_COPY: copies.reindex(best.index)}).sort_index()


def group_means(run: RunCells, of: pd.Index) -> pd.DataFrame:
    """Return the mean of the verified cells `of` in each group, indexed by GROUP.

    LOG_S is their mean, which shows a common change better than one cell does. LOG_COPY is their
    median. The repeats are those of the mean and of the median.
    """
    ok = run.ok.loc[run.ok.index.intersection(of)]
    by_group = ok.groupby(list(GROUP), observed=True)
    typical = by_group[[LOG_S]].mean()
    return typical.assign(
        **{
            LOG_COPY: by_group[LOG_COPY].median(),
            WITHIN: by_group[WITHIN].sum() / by_group.size() ** 2,
            HELD: by_group[HELD].mean(),
            NOISE: by_group[NOISE].first(),
            "repeat_medians_s": by_group["repeat_medians_s"].agg(
                lambda repeats: np.exp(np.log(_common_repeats(repeats)).mean(axis=0))
            ),
            "repeat_memcpy_gbs": by_group["repeat_memcpy_gbs"].agg(
                lambda repeats: np.median(_common_repeats(repeats), axis=0)
            ),
        }
    ).rename_axis([None] * len(GROUP))


def _common_repeats(repeats: pd.Series) -> Floats:
    """Return the values of the repeats that all cells have, shape (cells, repeats)."""
    n = min(map(len, repeats))
    return np.array([values[:n] for values in repeats], np.float64)


def copies(run: RunCells) -> pd.DataFrame:
    """Return the memcpy baseline in each PLACE; LOG_S is minus the logarithm of its bandwidth.

    LOG_CELL is the log of the place's median cell time, which determines its class. LOG_COPY is
    NaN. If no cell has the bandwidth of a comparable copy, LOG_S and LOG_CELL are the logarithm of
    the copies' seconds.
    """
    ok = run.ok[run.ok[LOG_COPY].notna()]
    if ok.empty:
        log_cell = _timed_copies(run)
        log_s = log_cell
        noise = log_s.index.get_level_values("cache_state")
    else:
        by_place = ok.groupby(PLACE, observed=True)
        log_s, log_cell = -by_place[LOG_COPY].median(), by_place[LOG_S].median()
        noise = by_place[NOISE].first()
    columns = {LOG_S: log_s, LOG_CELL: log_cell, LOG_COPY: np.nan, WITHIN: 0.0, HELD: 0.0}
    return pd.DataFrame(columns | {NOISE: noise}, index=log_s.index)


def _timed_copies(run: RunCells) -> pd.Series:
    rows = [
        (
            Path(shard["params"]["folder"]).name,
            shard["params"]["dtype"],
            *(control[name] for name in ("height", "width", "cache_state")),
            shard["device"]["name"],
            float(np.log(np.median(control["seconds"]))),
        )
        for shard in run.provenance
        for control in shard["controls"]
        if control["seconds"]
    ]
    return pd.DataFrame(rows, columns=[*PLACE, LOG_S]).groupby(PLACE)[LOG_S].median()


def refuse_unlike(sides: Sequence[Sequence[RunCells]]) -> None:
    """Raise CompareError if the runs used different protocols or device models."""
    runs = [run for side in sides for run in side]
    protocols = {run.name: {shard["protocol_version"] for shard in run.provenance} for run in runs}
    if len(set.union(*protocols.values())) > 1:
        named = ", ".join(f"'{n}' by {min(versions)}" for n, versions in protocols.items())
        raise CompareError(
            f"The runs were measured by different protocols ({named}), whose times mean different "
            "things: those of protocol 1 hold the overhead of their samples; measure the older one "
            "again."
        )
    names = [{name for run in side for name in run.cells["device_name"]} for side in sides]
    if not set.intersection(*names):
        models = {run.name: ", ".join(sorted({*run.cells["device_name"]})) for run in runs}
        told = ", ".join(f"'{name}' on {model}" for name, model in models.items())
        raise CompareError(f"The runs were measured on different models ({told}); compare one.")


def differences(
    first: Sequence[RunCells], second: Sequence[RunCells], kernels: Collection[str]
) -> list[str]:
    """List other differences between the runs of A and B, such as drivers, from their shards.

    Only shards of these `kernels` count.
    """
    a, b = (_facts(side, kernels) for side in (first, second))
    return [
        f"{name}: {_named(a[name])} → {_named(b[name])}"
        for name in a
        if name in b and a[name] != b[name]
    ]


def _named(values: set[str]) -> str:
    shown = sorted(values)[:_MAX_NAMED]
    return ", ".join(shown) + (f" and {len(values) - len(shown)} more" if values > {*shown} else "")


def _facts(runs: Sequence[RunCells], kernels: Collection[str]) -> dict[str, set[str]]:
    facts: dict[str, set[str]] = {}
    for shard in (shard for run in runs for shard in run.provenance):
        kernel = str(shard["params"]["folder"]).rsplit("/", 1)[-1]
        if kernel in kernels:
            for name, value in _of_shard(shard, kernel):
                facts.setdefault(name, set()).add(value)
    return facts


# Names in older shards, and their present names in a configuration.
FORMER_NAMES = {"budget_s": "cell_budget_s", "timeout_s": "cell_timeout_s"}


def _of_shard(shard: Mapping[str, Any], kernel: str) -> Iterator[tuple[str, str]]:
    device = shard.get("device", {})
    host = shard.get("host", {})
    params = shard["params"]
    for name, value in (
        ("device", device.get("uuid")),
        ("driver", device.get("driver")),
        ("runtime", device.get("runtime")),
        ("host", host.get("name")),
        ("system", host.get("system")),
        ("gpushmoo", shard.get("gpushmoo")),
        (f"code of {kernel}", shard.get("kernel_digest")),
        ("seed of the data", params.get("seed")),
        ("thread limit", params.get("thread_limit")),
    ):
        if value is not None:
            yield name, str(value)
    for variant, options in (shard.get("builds") or {}).items():
        yield f"compiler options of {kernel}, {params['dtype']}, {variant}", str(options)
    for name, value in params["measure"].items():
        called = FORMER_NAMES.get(name, name)
        yield f"measure.{called} of {kernel}", json.dumps(value, sort_keys=True)


# Levels


@dataclass(frozen=True)
class RunLevel:
    """One table per run with LOG_S, LOG_COPY and WITHIN; all tables have the same rows."""

    name: str
    tables: Sequence[pd.DataFrame]

    @cached_property
    def classes(self) -> Classes:
        """Classes of the rows: one NOISE, and similar times."""
        first = self.tables[0]
        times = first.get(LOG_CELL, first[LOG_S]).to_numpy(np.float64)
        return Classes(first[NOISE].tolist(), times / np.log(10.0))

    @cached_property
    def raw(self) -> Floats:
        """Log times, shape (rows, runs)."""
        return np.column_stack([t[LOG_S].to_numpy(np.float64) for t in self.tables])

    @cached_property
    def copy(self) -> Floats:
        """Summand that makes a log time relative to the copy's; NaN without a copy."""
        return np.column_stack([t[LOG_COPY].to_numpy(np.float64) for t in self.tables])


def levels_of(runs: Sequence[RunCells]) -> dict[str, RunLevel]:
    """Return the levels of several runs, with the rows that all of them have."""
    swept, verified = swept_by_all(runs), verified_by_all(runs)
    tables = {
        CELL: [run.ok for run in runs],
        BEST: [bests(run, swept) for run in runs],
        GROUP_MEAN: [group_means(run, verified) for run in runs],
        COPY: [copies(run) for run in runs],
    }
    found = {}
    for name, each in tables.items():
        index = _common(table.index for table in each)
        found[name] = RunLevel(name, [table.loc[index] for table in each])
    return found


def swept_by_all(runs: Sequence[RunCells]) -> pd.Index:
    """Return the cells that every run tried, regardless of the outcome."""
    return _common(run.cells.index[run.cells["status"] != Status.NOT_SEARCHED] for run in runs)


def verified_by_all(runs: Sequence[RunCells]) -> pd.Index:
    """Return the cells that are verified in every run."""
    return _common(run.ok.index for run in runs)


def _common(indices: Iterable[pd.Index]) -> pd.Index:
    """Return the labels that every index has, in the order of the first."""
    return reduce(lambda one, other: one.intersection(other), indices)


def usual_spreads(
    levels: Mapping[str, RunLevel], without: Collection[int] = ()
) -> dict[str, Spreads]:
    """Return the spreads between runs without a change, by level; runs `without` are left out."""
    found = {}
    for name, level in levels.items():
        runs = [i for i in range(len(level.tables)) if i not in without]
        for kind, logs in ((name, level.raw), (name + OVER_COPY, level.raw + level.copy)):
            complete = np.asarray(np.isfinite(logs).all(axis=1))
            if complete.any():
                classes = level.classes.of(complete)
                found[kind] = class_spreads(replicated([logs[complete][:, runs]], classes))
    return found


@dataclass(frozen=True)
class LevelChanges(Changes):
    """The changes from first to second runs; the tables are those of the first pair."""

    first: pd.DataFrame
    second: pd.DataFrame


def changes_of(
    level: RunLevel,
    usual: Mapping[str, Spreads] | None,
    by_repeats: bool,
    only_observed: bool = False,
) -> LevelChanges:
    """Return the changes from the first half of a level's runs to the second, in pairs.

    The raw change of a cell is the Hodges–Lehmann shift of its samples, and that of other levels
    the difference of LOG_S. See `statistics.estimate`.

    Parameters
    ----------
    level
        Tables of the first runs, then of the second ones.
    usual
        Spreads between runs by level, if known.
    by_repeats
        Whether to estimate the spread from the repeats within a pair's two runs. Otherwise the
        error of a run is at least that of the mean of its repeats.
    only_observed
        Whether rows whose class `usual` has not observed are estimated from the repeats instead.
    """
    n = len(level.tables) // 2
    pairs = list(zip(level.tables[:n], level.tables[n:], strict=True))
    first, second = pairs[0]
    raw, copy = (logs[:, n:] - logs[:, :n] for logs in (level.raw, level.copy))
    if level.name == CELL:
        raw = np.column_stack([sample_shift(a, b) for a, b in pairs])
    within = (first[WITHIN] + second[WITHIN]).to_numpy(np.float64) / 2.0

    def estimated(kind: str, values: Floats, beside: bool) -> ChangeEstimate:
        spreads = (usual or {}).get(kind)
        repeats = [] if level.name == COPY else _repeats(pairs[0], beside)
        observed = np.ones(len(values), bool)
        if only_observed and spreads is not None:
            observed = spreads.covers(level.classes)
        out = _unknown(len(values))
        for kept, based_on, alone in (
            (observed, spreads, by_repeats),
            (~observed, None, True),
        ):
            of_kept = [block[kept] for block in repeats]
            found = _estimate(
                values[kept], level.classes.of(kept), within[kept], based_on, of_kept, alone
            )
            for name in ("change", "error", "df"):
                getattr(out, name)[kept] = getattr(found, name)
        return out

    estimates = [
        estimated(level.name, raw, False),
        estimated(level.name + OVER_COPY, raw + copy, True),
    ]
    unlike = np.mean([_explained(a, b) for a, b in pairs], axis=0)
    return LevelChanges(estimates[0], estimates[1], unlike, first, second)


def _explained(first: pd.DataFrame, second: pd.DataFrame) -> Floats:
    """Return the largest change of log times that different shares of an overhead can cause."""
    more = np.abs(first[HELD].to_numpy(np.float64) - second[HELD].to_numpy(np.float64))
    middle = (first[LOG_S].to_numpy(np.float64) + second[LOG_S].to_numpy(np.float64)) / 2.0
    explained: Floats = np.where(more > 0.0, MAX_OVERHEAD_S * more / np.exp(middle), 0.0)
    return explained


def _estimate(
    changes: Floats,
    classes: Classes,
    within: Floats,
    usual: Spreads | None,
    repeats: Sequence[Floats],
    by_repeats: bool,
) -> ChangeEstimate:
    """Call `statistics.estimate`, with NaN for changes without a copy.

    For `repeats` see `changes_of`.
    """
    known = np.asarray(np.isfinite(np.column_stack([changes, *repeats])).all(axis=1))
    out = _unknown(len(known))
    if not known.any():
        return out
    of_known = classes.of(known)
    seen = None
    if changes.shape[1] > 1:
        # A change is between two runs, so each of them has half of its variance.
        seen = replicated([changes[known] / math.sqrt(2.0)], of_known)
    if repeats:
        of_runs = [block[known] for block in repeats]
        if by_repeats and seen is None:
            seen = replicated(of_runs, of_known)
        else:
            of_repeats = replicated(_paired(of_runs), of_known)
            least = np.full(len(within), 0.0)
            least[known] = _own_variances(of_repeats) / repeats[0].shape[1]
            within = np.maximum(within, least)
    found = estimate(changes[known], of_known, within[known], usual, seen)
    for name in ("change", "error", "df"):
        getattr(out, name)[known] = getattr(found, name)
    return out


def _unknown(rows: int) -> ChangeEstimate:
    """Return the estimate of this number of rows about which nothing is known."""
    return ChangeEstimate(*(np.full(rows, value) for value in (np.nan, np.inf, 1.0)))


def _own_variances(found: Replicated) -> Floats:
    """Return cells' own variances, shrunk towards the typical one."""
    prior = class_spreads(found, few_df=0.0).at(found.classes)
    return moderated(prior.own, prior.own_df, found.own, found.df)[0]


def _repeats(pair: tuple[pd.DataFrame, pd.DataFrame], vs_memcpy: bool) -> list[Floats]:
    """Return log times of the repeats of both runs, (cells, repeats); none if a cell has one."""
    blocks = []
    for side in pair:
        medians = list(side["repeat_medians_s"])
        n = min(map(len, medians), default=0)
        if n < 2:
            return []
        block = np.log(np.array([values[:n] for values in medians], np.float64))
        if vs_memcpy:
            copies = [
                v[:n] if len(v) >= n else np.full(n, np.nan) for v in side["repeat_memcpy_gbs"]
            ]
            block = block + np.log(np.array(copies, np.float64))
        blocks.append(block)
    return blocks


def _paired(blocks: Sequence[Floats]) -> Sequence[Floats]:
    """Return the changes of repeats as one block, divided by √2 because each is of two runs.

    Repeat i of both runs draws the same placement of buffers, so its effect cancels. With different
    numbers of repeats, the blocks stay as they are.
    """
    first, second = blocks
    return [(second - first) / math.sqrt(2.0)] if first.shape == second.shape else blocks


def sample_shift(first: pd.DataFrame, second: pd.DataFrame) -> Floats:
    """Return the Hodges–Lehmann shift of each cell's log samples, the mean over its repeats."""
    if first.empty:
        return np.empty(0)
    # Logarithms of all samples in a row, and the number of samples in each repeat of each cell.
    sides = [
        (np.log(np.concatenate([*side["samples_s"]])), [*map(list, side["repeat_samples"])])
        for side in (first, second)
    ]
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


def _part(logs: Floats, counts: Places, repeat: int) -> tuple[Floats, Places]:
    """Return the samples of one repeat of each cell, in a row, and their numbers."""
    lengths = counts.sum(axis=1)
    begins = np.cumsum(lengths) - lengths + counts[:, :repeat].sum(axis=1)
    wanted = counts[:, repeat]
    offsets = np.arange(wanted.sum()) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    return logs[np.repeat(begins, wanted) + offsets], wanted


@dataclass(frozen=True)
class KnownSpreads:
    """Spreads by level that the library has of a device model, from repeated runs.

    Attributes
    ----------
    spreads
        The spreads by level.
    source
        The runs in words.
    times
        Range of the times of a launch for which the spreads are.
    devices
        Number of devices that the runs were measured on.
    protocol_version
        Measuring protocol of the runs.
    """

    spreads: Mapping[str, Spreads]
    source: str
    times: str
    devices: int
    protocol_version: int

    @property
    def words(self) -> str:
        """The runs, and the launches for which the spreads are."""
        states = sorted({str(name) for name, _ in self.spreads[CELL].classes})
        return (
            f"{self.source}, for {' and '.join(states)} launches of {self.times} with data on the "
            "device"
        )


def known_file(device: str) -> Path:
    """Return the file of spreads in the library: ``…/nvidia-h200.json`` for ``NVIDIA H200``."""
    name = "-".join(re.findall("[a-z0-9]+", device.lower()))
    return Path(__file__).parent / "known_spreads" / f"{name}.json"


def known_of(device: str) -> KnownSpreads:
    """Return the library's spreads of a device model; raise FileNotFoundError without any."""
    told = json.loads(known_file(device).read_text(encoding="utf-8"))
    spreads = {
        kind: Spreads(
            {_class(name): _class_spread(value) for name, value in plain["classes"].items()},
            _class_spread(plain["whole"]),
        )
        for kind, plain in told["kinds"].items()
    }
    decades = [decade for _, decade in spreads[CELL].classes]
    return KnownSpreads(
        spreads,
        f"{told['runs']} repeated runs without a change on {told['devices']} "
        f"{told['device_name']} ({told['measured']})",
        f"{seconds(10.0 ** min(decades))} to {seconds(10.0 ** (max(decades) + 1))}",
        told["devices"],
        told["protocol_version"],
    )


def known_spreads(run: RunCells) -> KnownSpreads | None:
    """Return the library's spreads for the run's device and protocol, or None."""
    names = set(run.cells["device_name"])
    if len(names) != 1 or not known_file(name := names.pop()).is_file():
        return None
    known = known_of(name)
    protocols = {shard["protocol_version"] for shard in run.provenance}
    return known if protocols == {known.protocol_version} else None


def class_text(of: Class) -> str:
    """Return ``warm, 1e-5 s``, the name of a class in a file."""
    name, decade = of
    return f"{name}, 1e{decade} s"


def _class(text: str) -> Class:
    """Parse a `class_text`: ``warm, 1e-5 s`` is the class ("warm", -5)."""
    found = re.fullmatch(r"(.+), 1e(-?\d+) s", text)
    assert found is not None
    return found[1], int(found[2])


def _class_spread(value: Mapping[str, Any]) -> ClassSpread:
    df = math.inf if value["own_df"] is None else float(value["own_df"])
    return ClassSpread(TypicalVariance(value["own"], df), value["shared"], value["shared_df"])
