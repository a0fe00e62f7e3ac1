"""The arguments of `sweep`, checked as a configuration is: a sentence for each fault."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..core.backends import AUTO, BACKENDS
from ..planning.config_schema import (
    ConfigError,
    check_schema,
    config_schema,
    of_a_call,
    with_defaults,
)
from ..planning.sweeps import (
    SweepConfig,
    measure_params,
    read_sweep,
    refuse_impossible,
    refuse_large,
)
from ..workloads.loader import KernelFolder, KernelFolderError, is_folder, load_kernel

# What of a sweep may be given as one value in place of a list of it.
_LISTS = ("dtypes", "variants", "sizes", "cache", "launch")
# What a configuration says under `measure` that is about runs of many jobs.
_OF_RUNS = frozenset({"cells_per_shard"})


@dataclass(frozen=True)
class Request:
    """What of a kernel is to be measured; what jobs are `asked`: seed, thread_limit, measure."""

    sweep: SweepConfig
    asked: dict[str, Any]


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name in plain values, each one that it may be; None leaves one out.

    Those that no kernel has a default for have that of the configuration's schema, but for one
    repeat. Raises ConfigError.
    """
    told = {name: _plain(value) for name, value in given.items() if value is not None}
    for name in _LISTS:
        if isinstance(told.get(name), str | int):
            told[name] = [told[name]]
    if "search" in told:
        # A mode alone, or some of the keys.
        asked = told["search"]
        search = asked if isinstance(asked, Mapping) else {"mode": asked}
        told["search"] = {**_defaults()["search"], **search}
    with of_a_call():
        check_schema(told, _schema())
    return {**_defaults(), **told}


def named_folder(kernel: str | os.PathLike[str]) -> Path:
    """The kernel's folder of that name. Raises ConfigError where it is none."""
    path = Path(kernel).expanduser().resolve()
    if not is_folder(path) or not (path / "workload.py").is_file():
        raise ConfigError(
            f"kernel: '{kernel}' is no kernel's folder; it must be one that holds workload.py."
        )
    return path


def loaded(path: Path) -> KernelFolder:
    """The kernel in a folder. Raises ConfigError where it does not load."""
    try:
        return load_kernel(path)
    except KernelFolderError as err:
        raise ConfigError(str(err)) from err


def read_request(folder: KernelFolder, told: Mapping[str, Any]) -> Request:
    """What arguments that are `checked` ask of the kernel in `folder`. Raises ConfigError."""
    with of_a_call():
        sweep = read_sweep("", told, folder)
        asked = {
            "seed": told["seed"],
            "thread_limit": told["thread_limit"],
            "measure": measure_params(
                "",
                {name: told[name] for name in with_defaults({}, config_schema())["measure"]},
            ),
        }
        named = {folder.name: sweep}
        refuse_large(named, told["backend"], told["max_cells"], told["max_builds"])
        refuse_impossible(named)
    return Request(sweep, asked)


@cache
def _defaults() -> dict[str, Any]:
    """Of all arguments but those that the kernel's own `workload.py` tells."""
    run = with_defaults({}, config_schema())
    named = {"seed": run["seed"], "thread_limit": run["thread_limit"]}
    return {**run["measure"], **named, "repeats": 1, "backend": AUTO, "device": 0, "runtime": AUTO}


@cache
def _schema() -> dict[str, Any]:
    """What each argument may be, by the schema of the configuration."""
    run = config_schema()
    whole, of_sweep = run["properties"], run["$defs"]["kernel"]["properties"]
    of_measure = whole["measure"]["properties"]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **{name: rule for name, rule in of_sweep.items() if name != "kernel"},
            **{name: rule for name, rule in of_measure.items() if name not in _OF_RUNS},
            "seed": whole["seed"],
            "thread_limit": whole["thread_limit"],
            "backend": {"enum": [AUTO, *BACKENDS]},
            "device": whole["device"]["anyOf"][1],
            "runtime": whole["opencl_runtime"],
        },
        "$defs": run["$defs"],
    }


def _plain(value: Any) -> Any:
    """As a configuration holds it: lists for whatever is counted, Python's own numbers."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range | np.ndarray):
        return [_plain(inner) for inner in value]
    return value.item() if isinstance(value, np.generic) else value
