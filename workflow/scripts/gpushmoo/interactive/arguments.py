"""The arguments of `sweep`, checked as a configuration is: a sentence for each fault."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.run_plan import SweepPlan
from ..devices.select import DeviceChoice
from ..planning.config_schema import (
    ConfigError,
    check_schema,
    config_schema,
    of_a_call,
    with_defaults,
)
from ..planning.plan import sweep_params
from ..planning.sweeps import (
    SweepConfig,
    measure_params,
    read_sweep,
    refuse_impossible,
    refuse_large,
)
from ..workloads.combinations import Tell
from ..workloads.loader import KernelFolder, KernelFolderError, is_folder, load_kernel

# Arguments that take one value in place of a list of it.
_LISTS = ("dtypes", "variants", "sizes", "cache", "timing_modes")
# The key under `measure` of a configuration that is about runs of many jobs.
_OF_RUNS = "cells_per_shard"


@dataclass(frozen=True)
class Request:
    """A sweep of a kernel, and the other parameters of its jobs: seed, thread_limit, measure.

    A compilation may take `compile_timeout_s`.
    """

    sweep: SweepConfig
    asked: dict[str, Any]
    compile_timeout_s: float

    def params(
        self, dtype: str, choice: DeviceChoice, repeat: int = 1, part: tuple[int, int] = (0, 1)
    ) -> dict[str, Any]:
        """Parameters of the job that measures an element type once, or a part of it.

        The `part` is its index, from 0, and how many there are.
        """
        where = {"device": choice.index, "opencl_runtime": choice.runtime}
        params = sweep_params(self.sweep, dtype, choice.backend, **where, **self.asked)
        index, count = part
        return SweepPlan(params, count).shard_params(index, repeat)


def checked(given: Mapping[str, Any], **more: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name as plain values, with defaults for those that are None.

    Defaults are those of a configuration, but for one repeat; arguments that default to the
    kernel's own values are left out. `more` are schemas of arguments that `sweep` does not have, or
    has with other values. Raises ConfigError.
    """
    values = {name: _plain(value) for name, value in given.items() if value is not None}
    for name in _LISTS:
        if isinstance(values.get(name), str | int | Mapping):
            values[name] = [values[name]]
    if "search" in values and not isinstance(values["search"], Mapping):
        values["search"] = {"mode": values["search"]}
    schema = _schema()
    schema |= {"properties": {**schema["properties"], **more}}
    with of_a_call():
        check_schema(values, schema)
    return with_defaults(values, schema)


def loaded(kernel: str | os.PathLike[str]) -> KernelFolder:
    """The kernel in that folder. Raises ConfigError where there is none or it does not load."""
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
    """The request that `checked` arguments make of the kernel in `folder`. Raises ConfigError.

    `tell` is called with how many combinations were looked through.
    """
    of_measure = config_schema()["properties"]["measure"]["properties"]
    with of_a_call():
        sweep = read_sweep("", values, folder)
        asked = {
            "seed": values["seed"],
            "thread_limit": values["thread_limit"],
            "measure": measure_params("", {n: values[n] for n in of_measure if n in values}),
        }
        named = {folder.name: sweep}
        look_through_all(sweep, tell)
        refuse_large(named, values["backend"], values["max_cells"], values["max_builds"])
    return Request(sweep, asked, values["compile_timeout_s"])


def look_through_all(sweep: SweepConfig, tell: Tell | None = None) -> None:
    """Look through the combinations of each element type, if a rule says which are valid.

    Raises ConfigError if none is.
    """
    with of_a_call():
        for dtype in sweep.dtypes if sweep.is_looked_through else ():
            sweep.combinations(dtype, tell)
        refuse_impossible({sweep.folder.name: sweep})


def refuse_no_flag(**flags: Any) -> None:
    """Raise ConfigError if one of these arguments is neither true nor false."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_) and value not in (0, 1):
            raise ConfigError(f"{name}: it is {value!r}; it must be True or False.")


def argument_names() -> list[str]:
    """The names of all arguments."""
    return [*_schema()["properties"]]


def _schema() -> dict[str, Any]:
    """What each argument may be, by the schema of the configuration."""
    run = config_schema()
    whole = run["properties"]
    of_sweep = run["$defs"]["kernel"]["properties"]
    of_measure = whole["measure"]["properties"]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **{name: rule for name, rule in of_sweep.items() if name != "kernel"},
            **{name: rule for name, rule in of_measure.items() if name != _OF_RUNS},
            "repeats": {**of_measure["repeats"], "default": 1},
            "budget": {**of_measure["budget"], "default": None},
            "seed": whole["seed"],
            "thread_limit": whole["thread_limit"],
            "backend": whole["backend"],
            "device": {**whole["device"], "default": 0},
            "opencl_runtime": whole["opencl_runtime"],
        },
        "$defs": run["$defs"],
    }


def _plain(value: Any) -> Any:
    """Convert sequences to lists and NumPy's numbers to Python's, as a configuration has them."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range | np.ndarray):
        return [_plain(inner) for inner in value]
    plain = value.item() if isinstance(value, np.generic) else value
    # As 2.0 of a quotient; 10.0 s are 10 s, too.
    is_whole = isinstance(plain, float) and plain.is_integer() and abs(plain) < 2**53
    return int(plain) if is_whole else plain
