"""One sweep of a configuration: a kernel, and what of it is measured; how much sweeps ask for."""

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
    """One sweep of a kernel, defaults filled in; `axes` are axis specifications."""

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
        """What its launches meet: each kind in each state of the cache."""
        return conditions(self.cache_states, self.timing_modes)

    @property
    def as_plain(self) -> dict[str, Any]:
        """What its cells are made of, apart from kernel, dtypes and axes; `space_of` reads it."""
        return {
            "sizes": [plain_size(size) for size in self.sizes],
            "variants": list(self.variants),
            "cache_states": list(self.cache_states),
            "timing_modes": list(self.timing_modes),
        }

    @cached_property
    def known_values(self) -> dict[str, frozenset[int]]:
        """The values of those axes of which no device must be asked."""
        specs = {name: spec for name, spec in self.axes.items() if not needs_device(spec)}
        return {name: frozenset(expand_axis(spec, TYPICAL)) for name, spec in specs.items()}

    @cached_property
    def n_combinations(self) -> int:
        """Combinations of all dtypes, at most: values that two parts of an axis share count twice.

        Valid or not.
        """
        others = (self.dtypes, self.variants, self.sizes, self.met)
        return math.prod(self._lengths(self.axes)) * math.prod(map(len, others))

    @cached_property
    def n_cells(self) -> int:
        """Valid combinations; all of them if the device decides which there are."""
        if not self.is_looked_through:
            return self.n_combinations
        return sum(len(self.combinations(dtype).places) for dtype in self.dtypes)

    @property
    def n_invalid(self) -> int:
        """Invalid combinations, as far as they are known without a device."""
        if not self.is_looked_through:
            return 0
        return sum(self.combinations(dtype).invalid for dtype in self.dtypes)

    @cached_property
    def most_builds(self) -> int:
        """Versions of all dtypes that must be compiled if all combinations are valid."""
        if not self.folder.workload.device_code:
            return 0
        of_axes = math.prod(self._lengths(self.folder.workload.compile_axes))
        return of_axes * len(self.variants) * len(self.dtypes)

    @cached_property
    def n_builds(self) -> int:
        """Versions of all dtypes that must be compiled; at most, if the device decides."""
        w = self.folder.workload
        if not (w.device_code and w.compile_axes and self.is_looked_through):
            return self.most_builds
        return sum(map(len, self.versions.values()))

    def _lengths(self, axes: Iterable[str]) -> Iterator[int]:
        return (most_values(self.axes[axis], TYPICAL) for axis in axes)

    @property
    def is_looked_through(self) -> bool:
        """Whether there is a rule of which combinations are valid, and these are known."""
        known = not depends_on_the_device(self.space(self.dtypes[0]))
        return known and self.folder.workload.is_restricted

    def combinations(self, dtype: str, tell: Tell | None = None) -> Combinations:
        """Which combinations are valid; they are looked through once. Raises ConfigError.

        `tell` is called with how far that is.
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
        """The combinations; None if there is no rule of which are valid, or the device decides."""
        return self.combinations(dtype) if self.is_looked_through else None

    def rows(self, dtype: str, jobs: int) -> int | None:
        """About how many rows this number of jobs writes; None if each combination is one."""
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
        """What is to be compiled, by dtype."""
        w = self.folder.workload
        looks = bool(w.compile_axes) and self.is_looked_through
        return {
            d: versions_of(w, self.space(d), self.combinations(d) if looks else None)
            for d in self.dtypes
        }

    @property
    def asks_for_sizes(self) -> bool:
        """Whether a size depends on the device."""
        return any(isinstance(size, RelativeSize) for size in self.sizes)

    def on(self, key: str, room: Room) -> SweepConfig:
        """The sweep with the sizes that it has on a device. Raises ConfigError.

        The `key` is that of the sizes for sentences.
        """
        try:
            for dtype in self.dtypes:
                problems = resolved(self.space(dtype), self.folder.workload, room).problems
        except SizeError as err:
            raise ConfigError(f"{key}: {err}.") from err
        return self.changed(sizes=tuple(problems))

    def changed(self, **values: Any) -> SweepConfig:
        """The sweep with these values; itself, which may know its combinations, if it has them."""
        same = all(getattr(self, name) == value for name, value in values.items())
        return self if same else replace(self, **values)

    def space(self, dtype: str) -> ShardSpace:
        """All cells of a dtype."""
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
    """The sweep that a configuration calls `name`; `paths` are kernels' folders by name."""
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
            f"{there or 'none'}; name its folder in kernel_folders.{did_you_mean(kernel, paths)}"
        )
    return read_sweep(f"kernels.{name}.", spec.given, load_kernel(paths[kernel]))


def read_sweep(key: str, spec: Mapping[str, Any], folder: KernelFolder) -> SweepConfig:
    """The sweep of `folder` that `spec` asks for; `key` is before its keys in sentences."""
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
    """A size as a configuration has it."""
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
    """``512 x 1024``, or ``{of_cache: 4}``."""
    return f"{size.height} x {size.width}" if isinstance(size, Problem) else size.label


def refuse_timing_modes(sweeps: Mapping[str, SweepConfig], backend: str) -> None:
    """Raise ConfigError where a sweep asks for a timing mode that the `backend` has not."""
    for name, sweep in sweeps.items():
        for kind in sweep.timing_modes:
            if kind not in BACKENDS[backend].timing_modes:
                raise ConfigError(
                    f"kernels.{name}.timing_modes: {backend} has no timing mode '{kind}'; "
                    f"it has: {', '.join(BACKENDS[backend].timing_modes)}."
                )


def refuse_few_samples(key: str, measure: Measure) -> None:
    """Raise ConfigError if there are more least samples than most."""
    if measure.max_samples < measure.min_samples:
        raise ConfigError(
            f"{key}max_samples is {measure.max_samples} but must be at least {key}min_samples, "
            f"which is {measure.min_samples}."
        )


def check_axis(key: str, spec: Any, least: int = 1, most: int | None = None) -> None:
    """Raise ConfigError where an axis specification holds values below `least` or over `most`."""
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
    """Raise ConfigError where a problem needs more than `memory`, or `allocation` in a buffer.

    Sizes that depend on the device are checked where they are resolved (`SweepConfig.on`).
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
    """Raise ConfigError where two sweeps measure one cell."""
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
    """Whether two sweeps of a kernel have no cell in common.

    Two different factors, or a factor and a number, may have one size on a device. That is seen
    when sizes are resolved, or else when cells are aggregated.
    """
    parts: list[tuple[Collection[Any], Collection[Any]]] = [
        (_marks(one.sizes), _marks(other.sizes))
    ]
    parts += [(getattr(one, n), getattr(other, n)) for n in ("dtypes", "variants", "met")]
    values, other_values = one.known_values, other.known_values
    parts += [(values[axis], other_values[axis]) for axis in values if axis in other_values]
    return any(frozenset(ours).isdisjoint(theirs) for ours, theirs in parts)


def _marks(sizes: Iterable[Size]) -> set[Problem | float]:
    """Two lists of sizes have an equal one on some device if their marks have one in common."""
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
    """Raise ConfigError if there are too many cells or versions, with the time that these take.

    Valid ones count. Axes are expanded only if the rule `valid` decides.
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
    """The numbers of sweeps, by name: `most`, unless these exceed the limit, then by `count`."""
    return most if sum(most.values()) <= limit else {name: count(name) for name in most}


def refuse_impossible(sweeps: Mapping[str, SweepConfig]) -> None:
    """Raise ConfigError where a kernel's `Workload.valid` has something against all its cells."""
    for name, sweep in sweeps.items():
        if reason := next(filter(None, map(sweep.refusal, sweep.dtypes)), None):
            raise ConfigError(f"{within(f'kernels.{name}: ', reason)}.")


def on_device(sweeps: Mapping[str, SweepConfig], room: Room) -> dict[str, SweepConfig]:
    """The sweeps with the sizes that they have on a device.

    Raises ConfigError where a size does not fit it, or two sweeps of a kernel have a cell in common
    there.
    """
    found = {name: sweep.on(f"kernels.{name}.sizes", room) for name, sweep in sweeps.items()}
    refuse_shared_cells(found)
    return found


def resolved_sentence(sweeps: Mapping[str, SweepConfig], room: Room, device: str) -> str | None:
    """What each size that follows the device is there; None without such sizes."""
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
    """How many cells and builds, and how long measuring takes, about, for the terminal."""
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
    """``, about 14 hours at 5 ms a cell``; nothing as long as no backend is known."""
    if backend not in BACKENDS:
        return ""
    cell_s = BACKENDS[backend].cell_s
    return f", about {duration(cells * cell_s)} at {cell_s * 1e3:g} ms a cell"


def duration(seconds: float) -> str:
    """In the largest unit of which it has two: ``90 s``, ``14 hours``, ``1,200 years``."""
    units = (("years", 3.156e7), ("days", 86400.0), ("hours", 3600.0), ("min", 60.0))
    for unit, length_s in units:
        if seconds >= 2.0 * length_s:
            return f"{_number(round(seconds / length_s))} {unit}"
    return f"{max(1, round(seconds))} s"


def _number(n: int) -> str:
    """A product of many axes has too many digits to read, or for Python to write."""
    return f"{n:,}" if n < 10**15 else f"about 10^{math.log10(n):.0f}"
