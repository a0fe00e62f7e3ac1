"""Measure two versions of a kernel alternately, and test which one is faster and by how much."""

from __future__ import annotations

import io
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from ..comparing.compare import change
from ..comparing.verdicts import MIN_BLOCKS, block_changes, judged, paired_change
from ..core.display import number_of, one_line, seconds
from ..core.errors import ConfigError, raises_at_caller
from ..core.news import News
from ..core.schema import Bool, Float64, Int32, Int64, Meaning, Status, String, Table
from ..core.space import TYPICAL, most_values, needs_device
from ..devices.base import DeviceInfo
from ..devices.select import DeviceChoice
from ..measuring.events import NAMES, Against, Assignment
from ..measuring.job import MeasuredPairs, measure_pairs
from ..planning.refusal import refuse_unknown
from ..planning.settings import Threshold
from ..storage.temporary import OwnFolder
from ..workloads.combinations import Tell
from ..workloads.loader import KernelFolder, have_same_rule, late_imports, shared_code
from .arguments import (
    Arguments,
    Request,
    checked,
    loaded,
    look_through_all,
    refuse_large_sweep,
    refuse_no_flag,
    unlimited_request,
)
from .measure import LOG, WORKERS, device_of, logged, on_this
from .tune_arguments import options_of

# The arguments of `sweep` that a call of `ab` has as well, and former keywords.
_SWEPT = (
    "axes",
    "dtypes",
    "sizes",
    "cache",
    "timing_modes",
    "backend",
    "device",
    "opencl_runtime",
)
_FORMER = ("variant_a", "variant_b", "options_a", "options_b")
# The keys of `measure` that mean something here.
_MEASURE = (
    "cell_timeout_s",
    "compile_timeout_s",
    "max_builds",
    "max_cells",
    "max_faults",
    "seed",
    "thread_limit",
    "warmup",
)


class PairArguments(Arguments):
    """Arguments of `ab` that are also keys of a configuration, and those that only pairs have."""

    # Pairs are compared, and so measured on one device.
    device: Annotated[int, Field(ge=0), Meaning("Index of the device.")] = 0
    pairs: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Meaning("Pairs of an element type at most; by default all."),
    ] = None
    rounds: Annotated[
        int,
        Field(ge=MIN_BLOCKS, le=10_000),
        Meaning("Rounds of two samples of A and two of B."),
    ] = 8
    threshold: Threshold = 0.01


@dataclass(frozen=True)
class Version:
    """A version of a kernel to compare with `ab`.

    Parameters
    ----------
    folder : path
        The kernel's folder.
    variant : str
        The variant, by default all variants that both versions have.
    options : str or list of str
        Additional options for the backend's compiler, for example ``"-use_fast_math"``.
    """

    folder: str | os.PathLike[str]
    variant: str | None = None
    options: str | Sequence[str] = ()


@raises_at_caller
def ab(
    a: str | os.PathLike[str] | Version,
    b: str | os.PathLike[str] | Version | None = None,
    *,
    pairs: int | None = None,
    rounds: int = 8,
    threshold: float = 0.01,
    progress: bool = True,
    **sweep: Any,
) -> ABTest:
    """Measure two versions of a kernel alternately on one device, and test which one is faster.

    A pair consists of a cell of A and a cell of B with the same element type, size, cache state,
    timing mode and values of all parameters that both kernels have. A round samples each pair in
    the order A B B A. The call blocks until all pairs are measured. If a kernel crashes, hangs or
    computes a wrong result, only its pair fails, and its status is not ``ok``.

    Parameters
    ----------
    a, b : path or Version
        Folders of kernels, or versions with a variant and options of the compiler. Without `b`, the
        folder of `a`. Both folders may have the same name.
    pairs : int
        Largest number of pairs of an element type, drawn by the seed, by default all.
    rounds : int
        Number of rounds. Each has two samples of A and two of B.
    threshold : float
        Relative change that does not matter, for example 0.01.
    progress : bool
        Whether to print lines to stderr.
    **sweep
        ``axes``, ``dtypes``, ``sizes``, ``cache``, ``timing_modes``, ``backend``, ``device`` and
        ``opencl_runtime`` of both versions, as in `sweep`. ``seed``, ``thread_limit``, and keys
        under ``measure`` that do not concern samples. ``variant_a``, ``variant_b``, ``options_a``
        and ``options_b`` are former keywords, which the next version refuses.

    Returns
    -------
    ABTest
        With `cells`, a row for each pair, `groups` and `slower`.

    Raises
    ------
    ConfigError
        If an argument is wrong. It is a ValueError.
    DeviceError
        If no device can be used.
    """
    if former := [name for name in _FORMER if name in sweep]:
        warnings.warn(_now_called(former), DeprecationWarning, stacklevel=3)
    version_a, version_b = versions_of(a, b, sweep)
    refuse_unknown("measure", [name for name in sweep if name not in _SWEPT], _MEASURE)
    refuse_no_flag(progress=progress)
    own = {"pairs": pairs, "rounds": rounds, "threshold": threshold}
    values = checked({**sweep, **own}, PairArguments)
    WORKERS.prepare()
    options = (
        options_of(version_a.options, "options_a"),
        options_of(version_b.options, "options_b"),
    )
    folders = _load(version_a.folder, version_b.folder)
    measured = {}
    terminal = sys.stderr if progress else io.StringIO()
    news = News(terminal, in_place=True)
    chosen = _variants(folders, version_a.variant, version_b.variant)
    requests = _requests(folders, chosen, values)
    _look_through(requests, news.show)
    for request in requests:
        refuse_large_sweep(request.sweep, values)
    with OwnFolder() as place:
        with logged(Path(place) / LOG) as log_file:
            choice, info = device_of(values, log_file)
            requests = _on_one_device(requests, choice, info)
            _look_through(requests, news.show)
            news.clear()
            limit_s = values["compile_timeout_s"]
            for dtype in requests[0].sweep.dtypes:
                first, second = (request.job(dtype, choice) for request in requests)
                found = [request.sweep.known_combinations(dtype) for request in requests]
                against = Against(second, options, rounds, pairs, found[1])
                many = sum(len(request.sweep.versions[dtype]) for request in requests)
                began = time.monotonic()
                most_s = many * limit_s
                assignment = Assignment(
                    first,
                    choice.cache,
                    began,
                    against=against,
                    log=log_file,
                    compile_s=most_s,
                    found=found[0],
                )
                label = f"{folders[0].name} {dtype}, A and B"
                measured[dtype] = measure_pairs(assignment, label, terminal, WORKERS, in_place=True)
        log = log_file.read_text(encoding="utf-8", errors="replace")
    sides = [
        Side(request.sweep.folder.path, request.sweep.variants, own)
        for request, own in zip(requests, options, strict=True)
    ]
    return ABTest((sides[0], sides[1]), measured, rounds, threshold, log)


def versions_of(
    a: str | os.PathLike[str] | Version,
    b: str | os.PathLike[str] | Version | None,
    keywords: MutableMapping[str, Any],
) -> tuple[Version, Version]:
    """Return both versions of a kernel to compare.

    Parameters
    ----------
    a, b
        Folders of kernels, or versions. Without `b`, the folder of `a`.
    keywords
        Keywords of the call. Former keywords, such as ``variant_a``, are removed and applied to the
        versions.
    """
    first = a if isinstance(a, Version) else Version(a)
    second = Version(first.folder) if b is None else b if isinstance(b, Version) else Version(b)
    made = []
    for side, version in (("a", first), ("b", second)):
        fields = {f: keywords.pop(f"{f}_{side}", None) for f in ("variant", "options")}
        made.append(replace(version, **{f: v for f, v in fields.items() if v is not None}))
    return made[0], made[1]


def _now_called(former: Sequence[str]) -> str:
    """Return the deprecation warning for keywords that are now fields of a version."""
    fields = [name.rpartition("_")[0] for name in former]
    are = "is a former keyword" if len(former) == 1 else "are former keywords"
    inner = ", ".join(f"{field}=…" for field in dict.fromkeys(fields))
    return (
        f"ab: {', '.join(former)} {are}, which the next version refuses; pass "
        f"gpushmoo.Version(folder, {inner})."
    )


def _load(
    a: str | os.PathLike[str], b: str | os.PathLike[str]
) -> tuple[KernelFolder, KernelFolder]:
    """Return both kernels. If both folders are the same, the kernel is loaded only once."""
    one = loaded(a)
    if Path(b).expanduser().resolve() == one.path:
        return one, one
    other = loaded(b)
    shared = shared_code(one.path), shared_code(other.path)
    late = [*late_imports(one.path), *late_imports(other.path)]
    if late and all(shared) and shared[0] != shared[1]:
        raise ConfigError(
            f"'{late[0]}' imports within a function what A and B share with other kernels, which "
            "differs; import it at the top, so that each has its own."
        )
    return one, other


def _variants(
    folders: tuple[KernelFolder, KernelFolder], a: str | None, b: str | None
) -> tuple[list[str], list[str]]:
    """Return the variants of A, and in the same order those of B to compare them with."""
    first, second = (folder.workload for folder in folders)
    if a is None and b is None:
        both = [v for v in first.default_variants or first.variants if v in second.variants]
        if not both:
            raise ConfigError(
                f"variant_a, variant_b: A has {', '.join(first.variants)}, B has "
                f"{', '.join(second.variants)}; name one of each."
            )
        return both, both
    chosen = a or b, b or a
    refuse_unknown("variant_a", [chosen[0]], first.variants)
    refuse_unknown("variant_b", [chosen[1]], second.variants)
    return [str(chosen[0])], [str(chosen[1])]


def _requests(
    folders: tuple[KernelFolder, KernelFolder],
    variants: tuple[list[str], list[str]],
    values: Mapping[str, Any],
) -> list[Request]:
    """Return the sweeps of A and of B, restricted to values that both have."""
    axes = values.get("axes", {})
    known = [set(folder.workload.axes) for folder in folders]
    refuse_unknown("axes", axes, sorted(known[0] | known[1]))
    requests: list[Request] = []
    for folder, names, own in zip(folders, variants, known, strict=True):
        mine = {name: spec for name, spec in axes.items() if name in own}
        own_values = {**values, "axes": mine, "variants": names}
        requests.append(unlimited_request(folder, own_values))
    a, b = (request.sweep for request in requests)
    for sweep, other, who in ((a, b, "A"), (b, a, "B")):
        for name, spec in sweep.axes.items():
            one_value = not needs_device(spec) and most_values(spec, TYPICAL) == 1
            if name not in other.axes and not one_value:
                raise ConfigError(
                    f"axes: '{name}' is a parameter of {who} alone; give it one value (such as "
                    f"axes={{'{name}': 1}}), so that each cell has one to be compared with."
                )
    shared: dict[str, Any] = {
        "dtypes": _common("dtypes", a.dtypes, b.dtypes),
        "sizes": _common("sizes", a.sizes, b.sizes),
        "cache_states": _common("cache", a.cache_states, b.cache_states),
        "timing_modes": _common("timing_modes", a.timing_modes, b.timing_modes),
    }
    return [replace(request, sweep=request.sweep.changed(**shared)) for request in requests]


def _look_through(requests: Sequence[Request], tell: Tell) -> None:
    """Find the valid combinations of A and of B, only once if both share values and the rule.

    `tell` is called with the number of combinations that have been checked. Raises ConfigError if
    none is valid.
    """
    a, b = (request.sweep for request in requests)
    look_through_all(a, tell)
    if a.is_looked_through and b.is_looked_through:
        have_same_cells = all(a.space(dtype) == b.space(dtype) for dtype in a.dtypes)
        if have_same_cells and have_same_rule(a.folder.path, b.folder.path):
            # Measuring asks the rule of B for each cell of a pair again.
            b.take_combinations(a)
    look_through_all(b, tell)


def _on_one_device(
    requests: Sequence[Request], choice: DeviceChoice, info: DeviceInfo
) -> list[Request]:
    """Return both sweeps with the sizes that A has on the device."""
    a, b = (request.sweep for request in requests)
    here = on_this(a, choice, info)
    there = on_this(b.changed(sizes=here.sizes), choice, info)
    return [
        replace(request, sweep=sweep)
        for request, sweep in zip(requests, (here, there), strict=True)
    ]


def _common(name: str, a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values that A and B share for one argument, or raise ConfigError without any."""
    both = tuple(value for value in a if value in b)
    if not both:
        said = (", ".join(getattr(v, "label", str(v)) for v in values) for values in (a, b))
        raise ConfigError(f"{name}: A has {next(said)} and B {next(said)}; name what both have.")
    return both


# Says why two medians and the change beside them may differ.
_APART = (
    "These times are noisy, so the medians of all rounds differ by another share than the change, "
    "which compares A and B within each round."
)
# Rows of the table that a result is printed as.
_MAX_ROWS = 30
SAMPLE_COLUMNS = ["a_samples_s", "b_samples_s"]


class Pair(Table):
    """Columns that identify a pair of cells, besides their launch parameters."""

    dtype: String
    variant_a: Annotated[String, Meaning("variant of A")]
    variant_b: Annotated[String, Meaning("variant of B")]
    height: Int64
    width: Int64
    cache_state: String
    timing_mode: String


class Judged(Table):
    """Result of the test on the samples of one pair, or of several pairs together."""

    change: Float64 | None
    change_low: Float64 | None
    change_high: Float64 | None
    p_other: Annotated[Float64 | None, Meaning("p-value of that nothing changed", "0 to 1")]
    p_same: Annotated[
        Float64 | None, Meaning("p-value of that it changed by the threshold or more", "0 to 1")
    ]
    p_beyond: Annotated[
        Float64 | None,
        Meaning("p-value of that B is not slower by more than the threshold", "0 to 1"),
    ]
    verdict: Annotated[
        String | None, Meaning("as judged over all pairs; null of one that was not measured")
    ]
    beyond: Annotated[Bool, Meaning("whether B is shown to be slower by more than the threshold")]


class PairedCell(Judged, Pair):
    """A pair of cells; its launch parameters are further keys."""

    kernel: Annotated[
        String, Meaning("name of the kernel's folder, of several its path within both sides")
    ]
    status: Annotated[String, Meaning("how the pair ended; only what is ok has times")]
    message: String | None
    launches: Annotated[Int32 | None, Meaning("launches of a sample")]
    a_s: Annotated[Float64 | None, Meaning("median of a launch of A", "s")]
    b_s: Annotated[Float64 | None, Meaning("median of a launch of B", "s")]


class PairedGroup(Judged, Pair):
    """All measured pairs that differ only in their parameters, and their mean change."""

    kernel: Annotated[String, Meaning("as in the pairs")]
    pairs: Annotated[Int32, Meaning("how many there are")]


_WHICH, _JUDGED = (tuple(f.name for f in table.fields()) for table in (Pair, Judged))


@dataclass(frozen=True)
class Side:
    """One of the two versions: its folder, its variants, and its additional compiler options."""

    folder: Path
    variants: tuple[str, ...]
    options: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join([str(self.folder), ",".join(self.variants), *self.options])


class ABTest:
    """Result of measuring two versions of a kernel alternately on one device.

    `cells` has a row for each pair: the columns of `PairedCell`, the launch parameters, and the
    samples of A and of B in seconds, as arrays of shape (rounds, 2). `groups` has the columns of
    `PairedGroup`. Both have no column for the kernel.

    Parameters
    ----------
    sides
        The versions A and B.
    measured
        Measured pairs by element type.
    rounds
        Number of rounds, each with two samples of A and two of B.
    threshold
        Relative change that does not matter, for example 0.01.
    log
        Messages of compilers and measuring processes.
    """

    def __init__(
        self,
        sides: tuple[Side, Side],
        measured: Mapping[str, MeasuredPairs],
        rounds: int,
        threshold: float,
        log: str,
    ) -> None:
        """Test the samples of each pair, and of all pairs of a group together."""
        self.sides = sides
        self.rounds = rounds
        self.threshold = threshold
        self.log = log
        self.device: DeviceInfo = next(iter(measured.values())).opened.info
        self.alone = tuple(sum(m.opened.alone[who] for m in measured.values()) for who in (0, 1))
        codes = [[sorted(c.values()) for c in m.opened.codes] for m in measured.values()]
        # A runtime that does not show its code gives none, or "".
        is_same = all(a == b and a and all(a) for a, b in codes)
        self.same_code = sides[0].variants == sides[1].variants and is_same
        cells = pd.DataFrame([row for dtype, m in measured.items() for row in _rows(dtype, m)])
        ok = cells[cells["status"] == Status.OK]
        changes = [block_changes(*samples) for samples in ok[SAMPLE_COLUMNS].to_numpy()]
        judged_cells = _judged(changes, threshold).set_index(ok.index)
        self.cells = cells.drop(columns=SAMPLE_COLUMNS).join([judged_cells, cells[SAMPLE_COLUMNS]])
        self.cells["beyond"] = self.cells["beyond"].eq(True)
        # A block of a group is the mean of that block of all its pairs.
        groups = pd.Series(changes, ok.index, object).groupby([ok[c] for c in _WHICH], sort=False)
        self.groups = pd.concat(
            [
                groups.size().reset_index(name="pairs"),
                _judged([np.mean(list(of_group), axis=0) for _, of_group in groups], threshold),
            ],
            axis=1,
        )

    @property
    def verdicts(self) -> dict[str, int]:
        """Number of pairs by verdict. Pairs without a measurement do not count."""
        return dict(Counter(self.cells["verdict"].dropna()))

    @property
    def slower(self) -> bool:
        """Whether B is significantly slower by more than the threshold, in a pair or in a group."""
        return bool(self.cells["beyond"].any() or self.groups["beyond"].any())

    @property
    def axes(self) -> list[str]:
        """Names of the launch parameters, which are columns of `cells`."""
        columns = [*self.cells.columns]
        return columns[len(_WHICH) : columns.index("status")]

    @property
    def wrong(self) -> bool:
        """Whether B computes a wrong result in at least one pair."""
        wrong = self.cells[self.cells["status"] == Status.WRONG_RESULT]
        return bool(wrong["message"].str.startswith(f"{NAMES[1]}: ").any())

    def __repr__(self) -> str:
        a, b = self.sides
        parts = [f"A: {a}", f"B: {b}", f"{self.device.name}, {self.rounds} rounds of A B B A"]
        if self.same_code:
            parts.append(
                "Both were compiled into the same machine code. So the code is not the cause of "
                "differences below, but for example its place in memory."
            )
        if any(self.alone):
            parts.append(
                "Cells without one to be compared with: {} of A, {} of B.".format(*self.alone)
            )
        return "\n".join([*parts, self._summary(), *self._group_lines(), "", self._table()])

    def _summary(self) -> str:
        counted = [f"{n} {verdict}" for verdict, n in sorted(self.verdicts.items())]
        failed = Counter(s for s in self.cells["status"] if s != Status.OK)
        counted += [f"{n} {status}" for status, n in sorted(failed.items())]
        beyond = int(self.cells["beyond"].sum())
        more = f", and in {number_of(beyond, 'pair')} B is slower by more" if beyond else ""
        pairs = number_of(len(self.cells), "pair")
        margin = f"{100 * self.threshold:g} %"
        return f"{pairs}: {', '.join(counted)}; 'same' is within ±{margin}{more}."

    def _group_lines(self) -> Iterator[str]:
        for group in self.groups.to_dict("records"):
            if group["pairs"] > 1:
                which = ", ".join(str(group[name]) for name in _WHICH)
                yield f"All {group['pairs']} of {which}: {change(group)}, {group['verdict']}."

    def _table(self) -> str:
        """Return the table of pairs for the terminal: largest changes first, failed pairs last."""
        shown = self.cells.sort_values(
            "change", key=abs, ascending=False, na_position="last", kind="stable"
        ).head(_MAX_ROWS)
        constant = [c for c in _WHICH if self.cells[c].nunique() == 1]
        table = shown[[c for c in _WHICH if c not in constant] + self.axes].copy()
        for side in "ab":
            times = shown[f"{side}_s"]
            table[f"{side.upper()} (median)"] = ["" if pd.isna(t) else seconds(t) for t in times]
        table["change (95 % interval)"] = [change(row) for row in shown.to_dict("records")]
        faults = zip(shown["status"], shown["message"], strict=True)
        faults = pd.Series([one_line(f"{s}: {m}", 80) for s, m in faults], shown.index)
        table["verdict"] = shown["verdict"].fillna(faults)
        common = ", ".join(str(self.cells[c].iloc[0]) for c in constant)
        apart = (shown["b_s"] / shown["a_s"] - 1.0 - shown["change"]).abs().max()
        if apart > self.threshold:
            common += f"\n{_APART}"
        rest = len(self.cells) - len(shown)
        more = f"\n{rest} more pairs, which changed less, are in `cells`." if rest else ""
        return f"{common}\n{table.to_string(index=False)}{more}"


def _rows(dtype: str, measured: MeasuredPairs) -> Iterator[dict[str, Any]]:
    """Yield a row of plain values for each pair, without the results of the test."""
    for run in measured.runs:
        a, b = (one.cell for one in run.runs)
        a_s, b_s = (np.array(s, dtype=float).reshape(-1, 2) for s in (run.a_s, run.b_s))
        which = dtype, a.variant, b.variant, a.problem.height, a.problem.width, *a.condition
        yield {
            **dict(zip(_WHICH, which, strict=True)),
            # Of parameters that both have the values are the same.
            **dict(sorted({*a.params, *b.params})),
            "status": str(run.status),
            "message": run.message,
            "launches": run.launches,
            "a_s": np.median(a_s) if a_s.size else None,
            "b_s": np.median(b_s) if b_s.size else None,
            "a_samples_s": a_s,
            "b_samples_s": b_s,
        }


def _judged(changes: Sequence[Any], threshold: float) -> pd.DataFrame:
    """Return the results of the test, a row for each pair, corrected for testing many pairs."""
    found = [paired_change(of_pair, threshold) for of_pair in changes]
    rows = [
        [
            *np.expm1([change.estimate, change.low, change.high]),
            change.p_other,
            change.p_same,
            change.p_beyond,
            str(verdict),
            beyond,
        ]
        for change, (verdict, beyond) in zip(found, judged(found), strict=True)
    ]
    return pd.DataFrame(rows, columns=[*_JUDGED])
