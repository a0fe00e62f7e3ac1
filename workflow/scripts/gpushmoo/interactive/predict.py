"""The time of one launch by the model of a device, with no device at hand."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Any

import pandas as pd

from ..core.display import gbs, seconds
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
    cell: Cell

    def rows(self) -> pd.DataFrame:
        """One row, with the columns of a run's ``model/device.parquet``."""
        cell = self.cell
        row = {
            **{c: getattr(cell, c) for c in ("kernel", "dtype", "variant", "cache_state")},
            **{c: getattr(cell.problem, c) for c in ("height", "width")},
            **{c: getattr(self, c) for c in ("low_s", "high_s", "limit", "known_kernel")},
            **{f"{name.lower()}_share": share for name, share in self.shares.items()},
            "device_name": self.device,
            "predicted_s": self.seconds,
            "predicted_gbs": self.gbs,
            "resident_blocks": self.resident,
            **dict(cell.params),
        }
        return pd.DataFrame([row])

    def __str__(self) -> str:
        """The time with its band, and the limits."""
        ends = [seconds(end) for end in (self.low_s, self.high_s) if end is not None]
        band = f" ({' to '.join(ends)}, 90 %)" if ends else ""
        limits = sorted(self.shares.items(), key=lambda item: -item[1])
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in limits)
        return (
            f"{self.device}: {seconds(self.seconds)} a launch{band}, {gbs(self.gbs)}, limited by "
            f"{self.limit}\nTimes of the limits alone: {shares}"
        )


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
    """The time of one launch of a kernel, by the model of a device, which need not be here.

    The kernel is compiled, which needs NVRTC.

    Parameters
    ----------
    kernel : path
        A kernel's folder.
    dtype, variant, cache : str
        Element type; variant, by default the kernel's first; ``warm`` or ``flushed``.
    size : int or (int, int)
        Of the problem, or its height and width.
    model : path
        A run's ``model/device.json``; by default the model of an NVIDIA H200.
    **params : int
        The kernel's launch parameters, all of them.

    Returns
    -------
    Prediction
        With `seconds`, the band `low_s` to `high_s`, `gbs` and the `limit`.

    Raises
    ------
    ConfigError, DeviceError
        It cannot be predicted, which is a ValueError; there is no compiler or it refuses.
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
    predicted_s = float(device.seconds(launches)[0])
    limits = {name: float(cycles[0]) for name, cycles in device.limits(launches).items()}
    largest = max(LIMITS, key=lambda name: limits[name])
    bands = Bands(fitted["bands"]["of_kernel"], fitted["bands"]["of_others"])
    half = bands.half_width(folder.name)
    return Prediction(
        predicted_s,
        None if half is None else predicted_s * exp(-half),
        None if half is None else predicted_s * exp(half),
        float(launches.bytes_read[0] + launches.bytes_written[0]) / predicted_s * 1e-9,
        largest,
        {name: cycles / limits[largest] for name, cycles in limits.items()},
        resident,
        folder.name in bands.of_kernel,
        fitted["device"],
        cell,
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
