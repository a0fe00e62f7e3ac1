"""The time of one launch by the model of a device, with no device at hand."""

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
    """The time of one launch of the kernel in a folder, by the model of a device.

    `size` is that of the problem, one number or height and width; `params` are the kernel's launch
    parameters, all of them; `model` is a run's ``model/device.json``, by default that of an NVIDIA
    H200. The kernel is compiled here, which needs NVRTC but no device. Raises ConfigError, one
    sentence, for what cannot be predicted, and DeviceError where the compiler is missing or refuses
    the kernel.
    """
    fitted = _model(KNOWN if model is None else Path(model))
    arch, folder = fitted["arch"], loaded(kernel)
    workload = folder.workload
    cell = _cell(workload, folder.name, dtype, variant, size, cache, params)
    try:
        launch = workload.launch(cell)
    except LaunchRefusedError as err:
        raise ConfigError(f"There is no such launch: {err}") from err
    version = workload.version(cell)
    codes = version_code(folder, dtype, version, arch)
    code = codes[launch.entry]
    shared = code.shared_bytes + launch.shared_bytes
    resident = resident_blocks(arch, launch.threads, code.registers, shared)
    if not resident:
        raise ConfigError(f"No block of {launch.threads} threads fits a multiprocessor.")
    paths = {(folder.name, dtype, version.name, n): c.path for n, c in codes.items() if c.path}
    describer = Describer({folder.name: workload}, paths, DeviceFacts(**fitted["facts"]))
    described = describer.launch(cell, resident, IN_A_SAMPLE[cache])
    if isinstance(described, str):
        raise ConfigError(f"{folder.name}: {described}, so the model says nothing of it.")
    launches = Launches.of(pd.DataFrame([described]))
    device = Model({name: p["value"] for name, p in fitted["parameters"].items()})
    seconds = float(device.seconds(launches)[0])
    limits = {name: float(cycles[0]) for name, cycles in device.limits(launches).items()}
    largest = max(LIMITS, key=lambda name: limits[name])
    bands = Bands(fitted["bands"]["of_kernel"], fitted["bands"]["of_others"])
    half = bands.half_width(folder.name)
    return Prediction(
        seconds,
        None if half is None else seconds * exp(-half),
        None if half is None else seconds * exp(half),
        float(launches.bytes_read[0] + launches.bytes_written[0]) / seconds * 1e-9,
        largest,
        {name: cycles / limits[largest] for name, cycles in limits.items()},
        resident,
        folder.name in bands.of_kernel,
        fitted["device"],
    )


def _model(path: Path) -> dict[str, Any]:
    """The first device of a file that has parameters."""
    try:
        devices = read_json(path)["devices"]
    except (OSError, DamagedFileError, KeyError, TypeError) as err:
        raise ConfigError(f"model: '{path}' is no model/device.json of a run ({err}).") from err
    fitted = next((d for d in devices if "parameters" in d), None)
    if fitted is None:
        raise ConfigError(f"model: '{path}' has no device whose parameters were fitted.")
    if fitted["arch"] not in MULTIPROCESSORS:
        raise ConfigError(
            f"model: how many blocks {fitted['arch']} holds is not known; "
            f"{', '.join(sorted(MULTIPROCESSORS))} are."
        )
    return dict(fitted)


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
    needed = {name for name, value in workload.axes.items() if value != 0}
    if not needed <= set(params) <= set(workload.axes):
        names = ", ".join(sorted(workload.axes))
        raise ConfigError(f"The launch parameters of {kernel} are {names}; name each of them once.")
    problem = Problem(*size) if isinstance(size, tuple) else workload.problem(size)
    cell = Cell(kernel, dtype, chosen, problem, tuple(sorted(params.items())), cache)
    if (why := workload.valid(cell)) is not None:
        raise ConfigError(f"There is no such launch: {why}.")
    return cell
