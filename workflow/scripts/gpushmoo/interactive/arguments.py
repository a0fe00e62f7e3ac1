"""Check the arguments of `sweep` as keys of a configuration are checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from ..core.backends import AUTO
from ..core.errors import ConfigError, KernelFolderError
from ..core.keys import Section
from ..core.measure_settings import (
    Budget,
    CellBudgetS,
    CellTimeoutS,
    CompileTimeoutS,
    LaunchesFactor,
    LockClocks,
    MaxBuilds,
    MaxCells,
    MaxFaults,
    MaxSamples,
    Measure,
    MinSamples,
    RelativeHalfWidth,
    Repeats,
    Search,
    SearchKey,
    Warmup,
)
from ..core.shard_job import ShardJob
from ..devices.select import DeviceChoice
from ..planning.plan import HowMeasured, shard_job
from ..planning.refusal import of_a_call, read_section
from ..planning.settings import (
    SEED,
    THREAD_LIMIT,
    Backend,
    DeviceKey,
    OpenclRuntime,
    Seed,
    SweptKeys,
    ThreadLimit,
)
from ..planning.sweeps import (
    SweepConfig,
    read_sweep,
    refuse_few_samples,
    refuse_impossible,
    refuse_large,
)
from ..workloads.combinations import Tell
from ..workloads.loader import KernelFolder, is_folder, load_kernel

# Arguments that take one value in place of a list of it.
_LISTS = ("dtypes", "variants", "sizes", "cache", "timing_modes")


@dataclass(frozen=True)
class Request:
    """A checked sweep of a kernel, and the parameters of its measuring jobs.

    Attributes
    ----------
    sweep
        The kernel and the cells to measure.
    seed
        Seed of input data, of the order of samples and of the places of buffers.
    thread_limit
        Largest number of threads in a block, or None for the limit of the device.
    measure
        How cells are measured.
    compile_timeout_s
        Limit on the time of one compilation, in seconds.
    """

    sweep: SweepConfig
    seed: int
    thread_limit: int | None
    measure: Measure
    compile_timeout_s: float

    def job(
        self, dtype: str, choice: DeviceChoice, repeat: int = 1, part: tuple[int, int] = (0, 1)
    ) -> ShardJob:
        """Return the job that measures an element type on a device.

        Parameters
        ----------
        dtype
            Name of the element type.
        choice
            The device.
        repeat
            Number of the repeat, from 1.
        part
            Index of the shard, from 0, and number of shards.
        """
        how = HowMeasured(
            backend=choice.backend,
            device=choice.index,
            opencl_runtime=choice.runtime,
            seed=self.seed,
            thread_limit=self.thread_limit,
            measure=self.measure,
        )
        index, count = part
        return shard_job(self.sweep, dtype, how, count).part(index, repeat)


class Arguments(SweptKeys):
    """Arguments of `sweep` besides the kernel. A configuration has keys of the same names.

    Three defaults differ from those of a configuration: a call measures once, without a budget, on
    the first device.
    """

    repeats: Repeats = 1
    budget: Budget = None
    min_samples: MinSamples = Measure.min_samples
    max_samples: MaxSamples = Measure.max_samples
    relative_half_width: RelativeHalfWidth = Measure.relative_half_width
    cell_budget_s: CellBudgetS = Measure.cell_budget_s
    cell_timeout_s: CellTimeoutS = Measure.cell_timeout_s
    max_faults: MaxFaults = Measure.max_faults
    compile_timeout_s: CompileTimeoutS = Measure.compile_timeout_s
    warmup: Warmup = Measure.warmup
    search: SearchKey = Field(default_factory=Search)
    lock_clocks: LockClocks = Measure.lock_clocks
    launches_factor: LaunchesFactor = Measure.launches_factor
    max_cells: MaxCells = Measure.max_cells
    max_builds: MaxBuilds = Measure.max_builds
    seed: Seed = SEED
    thread_limit: ThreadLimit = THREAD_LIMIT
    backend: Backend = AUTO
    """Device backend; auto takes the first of which a device answers."""
    device: DeviceKey = 0
    """all (every CUDA device at once, one shard each; the first OpenCL device) or the index of one
    device."""
    opencl_runtime: OpenclRuntime = AUTO
    """OpenCL runtime, or auto for the first that works."""


# The arguments that default to the kernel's own values, and those that are keys under `measure`.
_OF_SWEEP = frozenset(SweptKeys.model_fields)
_OF_MEASURE = tuple(key.name for key in fields(Measure) if key.name in Arguments.model_fields)


def checked(given: Mapping[str, Any], kind: type[Section] = Arguments) -> dict[str, Any]:
    """Return checked arguments of a call as plain values, with defaults for missing ones.

    Parameters
    ----------
    given
        Values by argument. None means the default.
    kind
        Class that defines the arguments.

    Returns
    -------
    dict
        Values by argument. Arguments that default to the kernel's values are missing unless given.

    Raises
    ------
    ConfigError
        If an argument is not known, or if its value is not allowed.
    """
    values = {name: _plain(value) for name, value in given.items() if value is not None}
    for name in _LISTS:
        if isinstance(values.get(name), str | int | Mapping):
            values[name] = [values[name]]
    if "search" in values and not isinstance(values["search"], Mapping):
        values["search"] = {"mode": values["search"]}
    with of_a_call():
        found = read_section(kind, values)
    return {n: v for n, v in found.all_plain.items() if n not in _OF_SWEEP or v is not None}


def loaded(kernel: str | os.PathLike[str]) -> KernelFolder:
    """Return the kernel in a folder, or raise ConfigError if it is missing or does not load."""
    if not isinstance(kernel, str | os.PathLike):
        kind = type(kernel).__name__
        raise ConfigError(f"kernel: it is {kind}; it must be a kernel's folder or a Workload.")
    path = Path(kernel).expanduser().resolve()
    if not is_folder(path) or not (path / "workload.py").is_file():
        raise ConfigError(
            f"kernel: '{kernel}' is not a kernel's folder; there is no {path / 'workload.py'}."
        )
    try:
        return load_kernel(path)
    except KernelFolderError as err:
        raise ConfigError(str(err)) from err


def read_request(
    folder: KernelFolder, values: Mapping[str, Any], tell: Tell | None = None
) -> Request:
    """Return the request that the arguments of a call make.

    Parameters
    ----------
    folder
        The kernel.
    values
        Arguments that `checked` returned.
    tell
        Called with the progress of the check of combinations.

    Raises
    ------
    ConfigError
        If a value is not possible for this kernel, or if there are too many cells.
    """
    request = unlimited_request(folder, values)
    look_through_all(request.sweep, tell)
    refuse_large_sweep(request.sweep, values)
    return request


def unlimited_request(folder: KernelFolder, values: Mapping[str, Any]) -> Request:
    """Return the request, without a check of its combinations and of their number.

    Parameters
    ----------
    folder
        The kernel.
    values
        Arguments that `checked` returned.

    Raises
    ------
    ConfigError
        If a value is not possible for this kernel.
    """
    measure = Measure(
        **{n: values[n] for n in _OF_MEASURE if n in values and n != "search"},
        search=Search(**values["search"]),
    )
    with of_a_call():
        refuse_few_samples("", measure)
        sweep = read_sweep("", values, folder)
    return Request(
        sweep, values["seed"], values["thread_limit"], measure, values["compile_timeout_s"]
    )


def refuse_large_sweep(sweep: SweepConfig, values: Mapping[str, Any]) -> None:
    """Raise ConfigError if a sweep has more cells or versions than the arguments allow."""
    with of_a_call():
        named = {sweep.folder.name: sweep}
        refuse_large(named, values["backend"], values["max_cells"], values["max_builds"])


def look_through_all(sweep: SweepConfig, tell: Tell | None = None) -> None:
    """Check the combinations of each element type, if the kernel has a rule `valid`.

    Parameters
    ----------
    sweep
        The sweep, which keeps the result.
    tell
        Called with the progress of the check.

    Raises
    ------
    ConfigError
        If no combination is valid.
    """
    with of_a_call():
        for dtype in sweep.dtypes if sweep.is_looked_through else ():
            sweep.combinations(dtype, tell)
        refuse_impossible({sweep.folder.name: sweep})


def refuse_no_flag(**flags: Any) -> None:
    """Raise ConfigError if one of the arguments, given by name, is neither true nor false."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_) and value not in (0, 1):
            raise ConfigError(f"{name}: it is {value!r}; it must be True or False.")


def argument_names() -> list[str]:
    """Return the names of all arguments of `sweep`, except the kernel."""
    return [*Arguments.model_fields]


def _plain(value: Any) -> Any:
    """Convert sequences to lists and NumPy scalars to Python's, as a configuration has them."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range | np.ndarray):
        return [_plain(inner) for inner in value]
    plain = value.item() if isinstance(value, np.generic) else value
    # As 2.0 of a quotient; 10.0 s are 10 s, too.
    is_whole = isinstance(plain, float) and plain.is_integer() and abs(plain) < 2**53
    return int(plain) if is_whole else plain
