"""Define a sweep of a configuration: a kernel, its cells to measure, and how long that takes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from ..core.backends import BACKENDS
from ..core.display import joined
from ..core.errors import ConfigError, SizeError, WorkloadError
from ..core.measure_settings import Measure
from ..core.space import (
    TIMING_MODES,
    TYPICAL,
    Condition,
    Problem,
    RelativeSize,
    ShardSpace,
    Size,
    Version,
    conditions,
    expand_axis,
    most_values,
    needs_device,
    plain_size,
)
from ..workloads.combinations import MAX_ROWS, Combinations, Tell, look_through
from ..workloads.contract import Workload
from ..workloads.host_fed import HostFedWorkload
from ..workloads.loader import (
    KernelFolder,
    depends_on_the_device,
    load_kernel,
    misfit,
    refusal,
    values_of,
    versions_of,
)
from ..workloads.sizes import Room, deciding_dtype, resolved
from .refusal import MANY_NAMES, did_you_mean, named, refuse_unknown, within
from .settings import Sweep

# Combinations of a sweep that are looked through for valid ones, some microseconds each.
MAX_COMBINATIONS = 50_000_000


@dataclass(frozen=True)
class SweepConfig:
    """One sweep of a kernel, in which each key has a value.

    Attributes
    ----------
    folder
        The kernel's folder.
    dtypes, variants
        Names of element types and variants.
    sizes
        Problem sizes. They may depend on the device's cache.
    cache_states, timing_modes
        Measurement conditions, each state combined with each mode.
    axes
        Launch parameters by name, as specifications of `expand_axis`.
    """

    folder: KernelFolder
    dtypes: tuple[str, ...]
    variants: tuple[str, ...]
    sizes: tuple[Size, ...]
    cache_states: tuple[str, ...]
    axes: dict[str, Any]
    timing_modes: tuple[str, ...] = TIMING_MODES[:1]
    # What was looked through, by dtype.
    _found: dict[str, Combinations] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def met(self) -> list[Condition]:
        """Measurement conditions of the sweep: each timing mode in each state of the cache."""
        return conditions(self.cache_states, self.timing_modes)

    @property
    def as_plain(self) -> dict[str, Any]:
        """Sizes, variants and measurement conditions as plain values, which `space_of` reads."""
        return {
            "sizes": [plain_size(size) for size in self.sizes],
            "variants": list(self.variants),
            "cache_states": list(self.cache_states),
            "timing_modes": list(self.timing_modes),
        }

    @cached_property
    def known_values(self) -> dict[str, frozenset[int]]:
        """Values of those axes that do not depend on the device, by name."""
        specs = {name: spec for name, spec in self.axes.items() if not needs_device(spec)}
        return {name: frozenset(expand_axis(spec, TYPICAL)) for name, spec in specs.items()}

    @cached_property
    def n_combinations(self) -> int:
        """Upper bound on the number of combinations of all element types, including invalid ones.

        Values that are in two parts of an axis count twice.
        """
        others = (self.dtypes, self.variants, self.sizes, self.met)
        return math.prod(self._lengths(self.axes)) * math.prod(map(len, others))

    @cached_property
    def n_cells(self) -> int:
        """Number of valid combinations, or of all if the device decides which are valid."""
        if not self.is_looked_through:
            return self.n_combinations
        return sum(len(self.combinations(dtype).places) for dtype in self.dtypes)

    @property
    def n_invalid(self) -> int:
        """Number of invalid combinations, or 0 if they depend on the device."""
        if not self.is_looked_through:
            return 0
        return sum(self.combinations(dtype).invalid for dtype in self.dtypes)

    @cached_property
    def most_builds(self) -> int:
        """Number of versions to compile, of all element types, if all combinations are valid."""
        if not self.folder.workload.device_code:
            return 0
        of_axes = math.prod(self._lengths(self.folder.workload.compile_axes))
        return of_axes * len(self.variants) * len(self.dtypes)

    @cached_property
    def n_builds(self) -> int:
        """Number of versions to compile, of all types. An upper bound if the device decides."""
        w = self.folder.workload
        if not (w.device_code and w.compile_axes and self.is_looked_through):
            return self.most_builds
        return sum(map(len, self.versions.values()))

    def _lengths(self, axes: Iterable[str]) -> Iterator[int]:
        return (most_values(self.axes[axis], TYPICAL) for axis in axes)

    @property
    def is_looked_through(self) -> bool:
        """Whether gpushmoo checks each combination before a device is open.

        This requires that the kernel has a rule `valid`, and that no combination depends on the
        device.
        """
        known = not depends_on_the_device(self.space(self.dtypes[0]))
        return known and self.folder.workload.is_restricted

    def combinations(self, dtype: str, tell: Tell | None = None) -> Combinations:
        """Return the valid combinations of an element type. Each combination is checked only once.

        Parameters
        ----------
        dtype
            Name of the element type.
        tell
            Called with the progress of the check.

        Raises
        ------
        ConfigError
            If there are too many combinations to check.
        """
        if dtype not in self._found:
            total = self.n_combinations // len(self.dtypes)
            if total > MAX_COMBINATIONS:
                said = (
                    f"{_number(total)} combinations are too many to look through for valid ones; "
                    f"a sweep may have {_number(MAX_COMBINATIONS)}: list fewer values"
                )
                raise ConfigError(f"{within(f'kernels.{self.folder.name}: ', said)}.")
            space = self.space(dtype)
            w = self.folder.workload
            self._found[dtype] = look_through(w, space, values_of(space), tell)
        return self._found[dtype]

    def take_combinations(self, looked_through: SweepConfig) -> None:
        """Use the combinations of a sweep that has the same cells and the same rule."""
        self._found.update(looked_through._found)

    def known_combinations(self, dtype: str) -> Combinations | None:
        """Return the valid combinations of an element type, or None if they are not known yet.

        They are known if the kernel has a rule `valid` and nothing depends on the device.
        """
        return self.combinations(dtype) if self.is_looked_through else None

    def rows(self, dtype: str, jobs: int) -> int | None:
        """Estimate the number of rows that the jobs of an element type write.

        Parameters
        ----------
        dtype
            Name of the element type.
        jobs
            Number of measuring jobs.

        Returns
        -------
        int or None
            None if each combination gets a row. Invalid combinations get no row if there are
            too many.
        """
        # Few need not be looked through.
        found = self.known_combinations(dtype) if self.n_combinations > jobs * MAX_ROWS else None
        return len(found.places) if found and found.invalid > jobs * MAX_ROWS else None

    def refusal(self, dtype: str) -> str | None:
        """Return why the sweep cannot measure any cell of an element type, as a clause.

        The reason is that the kernel's rule `valid` leaves nothing to measure: it rejects each
        combination of parameters or raises an error for it, or it raises too many errors. The
        result is None if there is no such reason, or if that is not known before a device is open.

        Parameters
        ----------
        dtype
            Name of the element type.
        """
        w = self.folder.workload
        found = self._found.get(dtype)
        return found.fault(w.valid_is) if found else refusal(w, self.space(dtype))

    @cached_property
    def versions(self) -> dict[str, list[Version]]:
        """Versions of the kernel to compile, by element type."""
        w = self.folder.workload
        looks = bool(w.compile_axes) and self.is_looked_through
        return {
            d: versions_of(w, self.space(d), self.combinations(d) if looks else None)
            for d in self.dtypes
        }

    @property
    def asks_for_sizes(self) -> bool:
        """Whether a size depends on the device's cache."""
        return any(isinstance(size, RelativeSize) for size in self.sizes)

    def on(self, key: str, room: Room) -> SweepConfig:
        """Return the sweep with the sizes that it has on a device.

        Parameters
        ----------
        key
            Name of the key of the sizes, for messages.
        room
            Cache and memory of the device.

        Raises
        ------
        ConfigError
            If a size does not fit on the device.
        """
        try:
            for dtype in self.dtypes:
                problems = resolved(self.space(dtype), self.folder.workload, room).problems
        except SizeError as err:
            raise ConfigError(f"{key}: {err}.") from err
        return self.changed(sizes=tuple(problems))

    def changed(self, **values: Any) -> SweepConfig:
        """Return a copy of the sweep with other values of attributes.

        If all values are equal to the present ones, the result is this object, which may have
        checked its combinations already.
        """
        same = all(getattr(self, name) == value for name, value in values.items())
        return self if same else replace(self, **values)

    def space(self, dtype: str) -> ShardSpace:
        """Return all cells of an element type as one shard."""
        return ShardSpace(
            dtype,
            self.variants,
            self.sizes,
            self.cache_states,
            self.axes,
            index=0,
            count=1,
            timing_modes=self.timing_modes,
        )


def named_sweep(name: str, spec: Sweep, paths: Mapping[str, Path]) -> SweepConfig:
    """Return a sweep of the configuration, after loading its kernel.

    Parameters
    ----------
    name
        Name of the sweep, which is also the kernel's unless `spec` names another.
    spec
        The sweep's keys.
    paths
        Folders of all known kernels, by name.

    Raises
    ------
    ConfigError
        If the name or a key of the sweep is wrong, or if there is no such kernel.
    """
    if not re.fullmatch("[A-Za-z0-9_]+", name):
        raise ConfigError(
            f"kernels.{name}: a sweep's name must consist of letters, digits and '_'."
        )
    kernel = spec.kernel or name
    if kernel not in paths:
        which = f"kernels.{name}" + (".kernel" if spec.kernel else "")
        places = joined(sorted({str(path.parent) for path in paths.values()}))
        found = sorted(paths)
        there = ", ".join(found) if len(found) <= MANY_NAMES else f"{len(found)} kernels"
        raise ConfigError(
            f"{which}: there is no such kernel as '{kernel}' in {places or 'any folder'}; found: "
            f"{there or 'none'}; add the folder that contains the kernel's folder to the key "
            f"kernel_folders.{did_you_mean(kernel, paths)}"
        )
    return read_sweep(f"kernels.{name}.", spec.given, load_kernel(paths[kernel]))


def read_sweep(key: str, spec: Mapping[str, Any], folder: KernelFolder) -> SweepConfig:
    """Return a checked sweep of a kernel. Keys that are missing get the kernel's defaults.

    Parameters
    ----------
    key
        Prefix of the sweep's keys in messages, for example ``kernels.transpose.``.
    spec
        Values by key, as in a configuration.
    folder
        The kernel.

    Raises
    ------
    ConfigError
        If a value is not possible for this kernel.
    """
    w = folder.workload
    axes = {name: value for name, value in w.axes.items() if value != 0} | spec.get("axes", {})
    refuse_unknown(f"{key}axes", axes, w.axes)
    dtypes = spec.get("dtypes", list(w.dtypes))
    refuse_unknown(f"{key}dtypes", dtypes, w.dtypes)
    variants = spec.get("variants", list(w.default_variants or w.variants))
    refuse_unknown(f"{key}variants", variants, w.variants)
    for axis, value in axes.items():
        least = 0 if axis in w.zero_axes else 1
        if axis in w.compile_axes and needs_device(value):
            raise ConfigError(
                f"{named(f'{key}axes.{axis}')} asks the device, and '{axis}' is compiled into the "
                "kernel before there is one; list its values."
            )
        check_axis(f"{key}axes.{axis}", value, least, w.most.get(axis))
    sizes = tuple(_read_size(key, s, w, dtypes) for s in spec.get("sizes", list(w.sizes)))
    for size, count in Counter(sizes).items():
        if count > 1:
            raise ConfigError(f"{key}sizes: {in_words(size)} is given twice. Give each size once.")
    states = tuple(spec.get("cache", w.cache_states))
    kinds = tuple(spec.get("timing_modes", TIMING_MODES[:1]))
    if isinstance(w, HostFedWorkload) and kinds != TIMING_MODES[:1]:
        raise ConfigError(
            f"{named(f'{key}timing_modes')} must be [{TIMING_MODES[0]}] of a kernel that the host "
            "feeds: its own pipeline launches it."
        )
    return SweepConfig(folder, tuple(dtypes), tuple(variants), sizes, states, axes, kinds)


def _read_size(key: str, size: Any, w: Workload, dtypes: Iterable[str]) -> Size:
    """Return a size from its value in a configuration, or raise ConfigError."""
    if not isinstance(size, Mapping):
        return _read_problem(f"{key}sizes", size, w)
    if isinstance(w, HostFedWorkload):
        raise ConfigError(
            f"{named(f'{key}sizes')} follows the device's cache, and this kernel's data come from "
            "the host; write the number of elements."
        )
    on_cpu = size.get("on_cpu")
    return RelativeSize(
        float(size["of_cache"]),
        deciding_dtype(size["of_cache"], dtypes),
        None if on_cpu is None else _read_problem(f"{key}sizes", on_cpu, w),
    )


def _read_problem(key: str, size: Any, w: Workload) -> Problem:
    least = 0 if isinstance(w, HostFedWorkload) else 1
    if min(size if isinstance(size, list | tuple) else [size]) < least:
        raise ConfigError(f"{named(key)} holds {size}; a size must be at least {least}.")
    return w.problem(size) if isinstance(size, int) else Problem(*size)


def in_words(size: Size) -> str:
    """Return a size as messages show it: ``512 x 1024``, or ``{of_cache: 4}``."""
    return f"{size.height} x {size.width}" if isinstance(size, Problem) else size.label


def refuse_timing_modes(sweeps: Mapping[str, SweepConfig], backend: str) -> None:
    """Raise ConfigError if a sweep uses a timing mode that the backend does not support."""
    for name, sweep in sweeps.items():
        for kind in sweep.timing_modes:
            if kind not in BACKENDS[backend].timing_modes:
                raise ConfigError(
                    f"kernels.{name}.timing_modes: {backend} has no timing mode '{kind}'; "
                    f"it has: {', '.join(BACKENDS[backend].timing_modes)}."
                )


def refuse_few_samples(key: str, measure: Measure) -> None:
    """Raise ConfigError if the smallest number of samples exceeds the largest.

    Parameters
    ----------
    key
        Prefix of both keys in messages, for example ``measure.``.
    measure
        The section with both numbers.
    """
    if measure.max_samples < measure.min_samples:
        raise ConfigError(
            f"{key}max_samples is {measure.max_samples} but must be at least {key}min_samples, "
            f"which is {measure.min_samples}."
        )


def check_axis(key: str, spec: Any, least: int = 1, most: int | None = None) -> None:
    """Raise ConfigError if an axis specification contains a value out of range.

    Parameters
    ----------
    key
        Name of the axis, for messages.
    spec
        Axis specification of `expand_axis`.
    least, most
        Smallest and largest allowed value. Without `most` there is no upper limit.
    """
    parts = spec if isinstance(spec, list) else [spec]
    for part in parts:
        first = part.get("from", least) if isinstance(part, Mapping) else part
        if first < least:
            raise ConfigError(f"{named(key)} is {first}; it must be at least {least}.")
        last = part.get("to", first) if isinstance(part, Mapping) else part
        if most is not None and last > most:
            raise ConfigError(f"{named(key)} is {last}; it must be at most {most}.")
        if isinstance(part, Mapping) and "from" in part and part["from"] > part["to"]:
            raise ConfigError(
                f"{key}: the range from {part['from']} to {part['to']} is empty; "
                "'to' must be at least 'from'."
            )


def refuse_too_large(sweeps: Mapping[str, SweepConfig], memory: int, allocation: int) -> None:
    """Raise ConfigError if a problem of a sweep does not fit on the device.

    Sizes that depend on the device are checked when they are resolved (`SweepConfig.on`).

    Parameters
    ----------
    sweeps
        Sweeps by name.
    memory
        Memory of the device in bytes.
    allocation
        Largest size of one buffer in bytes.
    """
    for name, sweep in sweeps.items():
        for size, dtype in product(sweep.sizes, sweep.dtypes):
            if isinstance(size, RelativeSize):
                continue
            try:
                reason = misfit(sweep.folder.workload, size, dtype, memory, allocation)
            except WorkloadError:  # which the problem's cells will tell
                continue
            if reason is not None:
                raise ConfigError(f"kernels.{name}.sizes: {reason}; choose a smaller size.")


def refuse_shared_cells(sweeps: Mapping[str, SweepConfig]) -> None:
    """Raise ConfigError if two sweeps measure the same cell."""
    named = sorted(sweeps.items())
    for i, (name, sweep) in enumerate(named):
        for other, earlier in named[:i]:
            if sweep.folder.name != earlier.folder.name or _apart(sweep, earlier):
                continue
            shared = _marks(sweep.sizes) & _marks(earlier.sizes)
            words = sorted(
                in_words(mark) if isinstance(mark, Problem) else f"{{of_cache: {mark:g}}}"
                for mark in shared
            )
            raise ConfigError(
                f"kernels.{name}.sizes: kernels.{other} sweeps {sweep.folder.name} at "
                f"{words[0]}, too; no cell may be measured twice: two "
                "sweeps of one kernel must have no size in common, or else no type, no variant, no "
                "cache state, no timing mode or no value of one axis."
            )


def _apart(one: SweepConfig, other: SweepConfig) -> bool:
    """Return whether two sweeps of a kernel have no cell in common.

    Two different factors of the cache, or a factor and a number, may be the same size on a device.
    That is checked when sizes are resolved, or when cells are aggregated.
    """
    parts: list[tuple[Collection[Any], Collection[Any]]] = [
        (_marks(one.sizes), _marks(other.sizes))
    ]
    parts += [(getattr(one, n), getattr(other, n)) for n in ("dtypes", "variants", "met")]
    values, other_values = one.known_values, other.known_values
    parts += [(values[axis], other_values[axis]) for axis in values if axis in other_values]
    return any(frozenset(ours).isdisjoint(theirs) for ours, theirs in parts)


def _marks(sizes: Iterable[Size]) -> set[Problem | float]:
    """Return marks of sizes: two lists share a size on some device if their sets share a mark."""
    found: set[Problem | float] = set()
    for size in sizes:
        if isinstance(size, RelativeSize):
            found |= {size.of_cache} | ({size.on_cpu} if size.on_cpu else set())
        else:
            found.add(size)
    return found


def refuse_large(
    sweeps: Mapping[str, SweepConfig], backend: str, max_cells: int, max_builds: int
) -> None:
    """Raise ConfigError if a run has too many cells or versions, with the time that they take.

    Only valid combinations count. Combinations are checked only if all of them exceed the limit.

    Parameters
    ----------
    sweeps
        Sweeps by name.
    backend
        Name of the backend, for the time of a cell.
    max_cells, max_builds
        Largest number of cells, and of versions to compile.
    """
    everything = {name: sweep.n_combinations for name, sweep in sweeps.items()}
    counts = _counted(everything, max_cells, lambda name: sweeps[name].n_cells)
    total = sum(counts.values())
    name = max(counts, key=lambda name: counts[name])
    if total > max_cells:
        cells = within(f"kernels.{name}: ", _among(counts[name], total, "cells"))
        raise ConfigError(
            f"{cells}{_time_words(total, backend)}; a run may have {_number(max_cells)}: sweep "
            f"fewer values or sizes, or raise {within('measure.', 'max_cells')}."
        )
    everything = {name: sweep.most_builds for name, sweep in sweeps.items()}
    counts = _counted(everything, max_builds, lambda name: sweeps[name].n_builds)
    total = sum(counts.values())
    name = max(counts, key=lambda name: counts[name])
    if total > max_builds:
        versions = within(f"kernels.{name}: ", _among(counts[name], total, "versions"))
        axes = joined(sweeps[name].folder.workload.compile_axes) or "variants"
        raise ConfigError(
            f"{versions} to compile, one for each value of {axes}; a run may have "
            f"{_number(max_builds)}: list fewer values, or raise "
            f"{within('measure.', 'max_builds')}."
        )


def _counted(most: Mapping[str, int], limit: int, count: Callable[[str], int]) -> Mapping[str, int]:
    """Return a count for each sweep: `most`, or the result of `count` if these exceed the limit."""
    return most if sum(most.values()) <= limit else {name: count(name) for name in most}


def refuse_impossible(sweeps: Mapping[str, SweepConfig]) -> None:
    """Raise ConfigError if the rule `valid` of a kernel rejects all cells of a sweep."""
    for name, sweep in sweeps.items():
        if reason := next(filter(None, map(sweep.refusal, sweep.dtypes)), None):
            raise ConfigError(f"{within(f'kernels.{name}: ', reason)}.")


def on_device(sweeps: Mapping[str, SweepConfig], room: Room) -> dict[str, SweepConfig]:
    """Return the sweeps with the sizes that they have on a device.

    Parameters
    ----------
    sweeps
        Sweeps by name.
    room
        Cache and memory of the device.

    Raises
    ------
    ConfigError
        If a size does not fit on the device, or if two sweeps share a cell there.
    """
    found = {name: sweep.on(f"kernels.{name}.sizes", room) for name, sweep in sweeps.items()}
    refuse_shared_cells(found)
    return found


def resolved_sentence(sweeps: Mapping[str, SweepConfig], room: Room, device: str) -> str | None:
    """Return a sentence that lists the sizes which depend on the device, with their values there.

    Parameters
    ----------
    sweeps
        Sweeps by name.
    room
        Cache and memory of the device.
    device
        Name of the device.

    Returns
    -------
    str or None
        None if no size depends on the device.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for name, sweep in sweeps.items():
        for size in sweep.sizes:
            if isinstance(size, RelativeSize):
                alone = replace(sweep, sizes=(size,)).on(f"kernels.{name}.sizes", room)
                of_size = found.setdefault(size.label, {})
                of_size.setdefault(in_words(alone.sizes[0]), []).append(name)
    parts = (
        f"{label} is " + ", ".join(f"{words} ({', '.join(of)})" for words, of in there.items())
        for label, there in found.items()
    )
    return f"on '{device}' {'; '.join(parts)}." if found else None


def size_sentence(sweeps: Mapping[str, SweepConfig], backend: str) -> str:
    """Return sentences on the number of cells and versions, and on the time that measuring takes.

    Parameters
    ----------
    sweeps
        Sweeps by name.
    backend
        Name of the backend. With ``auto``, no time is stated.
    """
    cells = sum(sweep.n_cells for sweep in sweeps.values())
    builds = sum(sweep.n_builds for sweep in sweeps.values())
    jobs = sum(len(sweep.dtypes) for sweep in sweeps.values() if sweep.n_builds)
    # How many values such an axis has is known once a device is open.
    asks = any(
        sweep.asks_for_sizes or any(map(needs_device, sweep.axes.values()))
        for sweep in sweeps.values()
    )
    invalid = sum(sweep.n_invalid for sweep in sweeps.values())
    besides = f" ({_number(invalid)} combinations are invalid)" if invalid else ""
    counted = f"{'about ' * asks}{_number(cells)} cells{besides}, "
    counted += f"{_number(builds)} versions to compile in "
    counted += f"{_number(jobs)} job{'s' * (jobs != 1)}"
    if backend not in BACKENDS:
        return f"{counted}."
    cell_s = BACKENDS[backend].cell_s
    return (
        f"{counted}. Measuring takes about {duration(cells * cell_s)} at {cell_s * 1e3:g} ms a "
        "cell. Compiling and the report come on top."
    )


def _among(count: int, total: int, what: str) -> str:
    alone = f"{_number(total)} {what}"
    return alone if count == total else f"{_number(count)} of the run's {alone}"


def _time_words(cells: int, backend: str) -> str:
    """Return ``, about 14 hours at 5 ms a cell``, or nothing if the backend is not known."""
    if backend not in BACKENDS:
        return ""
    cell_s = BACKENDS[backend].cell_s
    return f", about {duration(cells * cell_s)} at {cell_s * 1e3:g} ms a cell"


def duration(seconds: float) -> str:
    """Return a time in the largest unit of which it has at least two, for example ``14 hours``."""
    units = (("years", 3.156e7), ("days", 86400.0), ("hours", 3600.0), ("min", 60.0))
    for unit, length_s in units:
        if seconds >= 2.0 * length_s:
            return f"{_number(round(seconds / length_s))} {unit}"
    return f"{max(1, round(seconds))} s"


def _number(n: int) -> str:
    """Return a number with separators of thousands, or as a power of ten if it has many digits."""
    return f"{n:,}" if n < 10**15 else f"about 10^{math.log10(n):.0f}"
