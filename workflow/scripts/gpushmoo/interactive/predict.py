"""What the model of a device says of one launch, with no device at hand."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Any

import pandas as pd

from ..core.errors import LaunchRefusedError
from ..core.space import CACHE_STATES, Cell, Problem
from ..devices.machine_code.cubins import version_code
from ..model.fit import Bands
from ..model.form import LIMITS, Model
from ..model.launches import MULTIPROCESSORS, Describer, DeviceFacts, Launches, resident_blocks
from ..planning.config_schema import ConfigError
from ..storage.wholefile import DamagedFileError, read_json
from ..workloads.contract import Workload
from .arguments import loaded

# The model of a device that comes with the library.
KNOWN = Path(__file__).with_name("known_devices") / "nvidia-h200.json"
# As many launches are timed together as the pipeline would take for a short one.
IN_A_SAMPLE = {"warm": 8, "flushed": 1}


@dataclass(frozen=True)
class Prediction:
    """Seconds of a launch with the band in which 90 % of the launches of such a kernel were found.

    `known_kernel` says whether cells of the kernel were in the fit; the band of others is wider.
    Where there is no band its ends are None. `gbs` counts bytes read plus written, GB = 10⁹ bytes;
    `limit` is the largest limit and `shares` all of them, as shares of it; `resident` are blocks of
    a multiprocessor.
    """

    seconds: float
    low_s: float | None
    high_s: float | None
    gbs: float
    limit: str
    shares: dict[str, float]
    resident: int
    known_kernel: bool
    device: str


def predict(
    kernel: str | os.PathLike[str],
    *,
    dtype: str,
    size: int | tuple[int, int],
    variant: str | None = None,
    cache: str = CACHE_STATES[0],
    model: str | os.PathLike[str] | None = None,
    **params: int,
) -> Prediction:
    """What the model of a device says of one launch of the kernel in a folder.

    `size` is that of the problem, one number or height and width; `params` are the kernel's launch
    parameters, all of them; `model` is a run's ``model/device.json``, by default that of an NVIDIA
    H200. The kernel is compiled here, which needs NVRTC but no device. Raises ConfigError, one
    sentence, for what cannot be predicted, and DeviceError where the compiler is missing or refuses
    the kernel.
    """
    told = _model(KNOWN if model is None else Path(model))
    folder = loaded(kernel)
    cell = _cell(folder.workload, folder.name, dtype, variant, size, cache, params)
    launch = _launch(folder.workload, cell)
    arch = told["arch"]
    codes = version_code(folder, dtype, folder.workload.version(cell), arch)
    code = codes[launch.entry]
    resident = resident_blocks(
        arch, launch.threads, code.registers, code.shared_bytes + launch.shared_bytes
    )
    if not resident:
        raise ConfigError(f"No block of {launch.threads} threads fits a multiprocessor.")
    version = folder.workload.version(cell).name
    paths = {(folder.name, dtype, version, n): c.path for n, c in codes.items() if c.path}
    describer = Describer({folder.name: folder.workload}, paths, DeviceFacts(**told["facts"]))
    asked = describer.launch(cell, resident, IN_A_SAMPLE[cache])
    if isinstance(asked, str):
        raise ConfigError(f"{folder.name}: {asked}, so the model says nothing of it.")
    return _prediction(told, folder.name, Launches.of(pd.DataFrame([asked])), resident)


def _model(path: Path) -> dict[str, Any]:
    """The first device of a file that has parameters."""
    try:
        devices = read_json(path)["devices"]
    except (OSError, DamagedFileError, KeyError, TypeError) as err:
        raise ConfigError(f"model: '{path}' is no model/device.json of a run ({err}).") from err
    told = next((d for d in devices if "parameters" in d), None)
    if told is None:
        raise ConfigError(f"model: '{path}' has no device whose parameters were fitted.")
    if told["arch"] not in MULTIPROCESSORS:
        known = ", ".join(sorted(MULTIPROCESSORS))
        raise ConfigError(f"model: how many blocks {told['arch']} holds is not known; {known} are.")
    return dict(told)


def _cell(
    workload: Workload,
    kernel: str,
    dtype: str,
    variant: str | None,
    size: int | tuple[int, int],
    cache: str,
    params: dict[str, int],
) -> Cell:
    """The cell that is meant. Raises ConfigError for one that cannot be."""
    chosen = variant or (workload.default_variants or workload.variants)[0]
    for what, value, allowed in (
        ("dtype", dtype, workload.dtypes),
        ("variant", chosen, workload.variants),
        ("cache", cache, CACHE_STATES),
    ):
        if value not in allowed:
            raise ConfigError(f"{what}: '{value}' is none of {', '.join(allowed)}.")
    if set(params) != set(workload.axes):
        wanted = ", ".join(sorted(workload.axes))
        raise ConfigError(
            f"The launch parameters of {kernel} are {wanted}; name each of them once."
        )
    problem = Problem(*size) if isinstance(size, tuple) else workload.problem(size)
    cell = Cell(kernel, dtype, chosen, problem, tuple(sorted(params.items())), cache)
    if (why := workload.valid(cell)) is not None:
        raise ConfigError(f"There is no such launch: {why}.")
    return cell


def _launch(workload: Workload, cell: Cell) -> Any:
    try:
        return workload.launch(cell)
    except LaunchRefusedError as err:
        raise ConfigError(f"There is no such launch: {err}") from err


def _prediction(told: dict[str, Any], kernel: str, x: Launches, resident: int) -> Prediction:
    model = Model({name: p["value"] for name, p in told["parameters"].items()})
    seconds = float(model.seconds(x)[0])
    limits = {name: float(cycles[0]) for name, cycles in model.limits(x).items()}
    largest = max(limits.values())
    bands = Bands(told["bands"]["of_kernel"], told["bands"]["of_others"])
    half = bands.half_width(kernel)
    moved = float(x.bytes_read[0] + x.bytes_written[0])
    return Prediction(
        seconds,
        None if half is None else seconds * exp(-half),
        None if half is None else seconds * exp(half),
        moved / seconds * 1e-9,
        max(LIMITS, key=lambda name: limits[name]),
        {name: cycles / largest for name, cycles in limits.items()},
        resident,
        kernel in bands.of_kernel,
        told["device"],
    )
