"""Predict the times of launches with the fitted model of a device, which need not be present."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, overload

import pandas as pd

from ..core.display import gbs, seconds, significant, size_words
from ..core.errors import (
    BuildError,
    ConfigError,
    DamagedFileError,
    LaunchConfigError,
    UserError,
    WorkloadError,
    raises_at_caller,
)
from ..core.schema import Bool, Float64, Int32, Int64, Meaning, String, Table
from ..core.space import (
    CACHE_STATES,
    TYPICAL,
    Cell,
    Problem,
    Version,
    enumerate_cells,
    expand_axis,
    in_order,
    needs_device,
)
from ..devices.machine_code.cubins import version_code
from ..devices.machine_code.sass import EntryCode
from ..devices.select import kept_for_calls
from ..model.fit import Bands
from ..model.form import LIMITS, Model
from ..model.launches import (
    MULTIPROCESSORS,
    UNTOLD,
    Describer,
    DeviceFacts,
    Launches,
    resident_blocks,
)
from ..storage.wholefile import read_json
from ..workloads.loader import KernelFolder
from .arguments import checked, loaded
from .text_tables import aligned

# The model of a device that comes with the library.
KNOWN = Path(__file__).with_name("known_devices") / "nvidia-h200.json"
# A warm launch is one of an endless row, because its time excludes the overhead of its sample.
IN_A_SAMPLE = {"warm": math.inf, "flushed": 1}
# The machine code of a version by its functions, or the reason if it is missing.
Codes = Mapping[Version, Mapping[str, EntryCode] | BuildError]


class PredictedLaunch(Table):
    """The model's prediction for a launch. Its launch parameters are further keys."""

    device_name: String
    kernel: String
    dtype: String
    variant: String
    cache_state: String
    height: Int64
    width: Int64
    predicted_s: Float64 | None
    low_s: Float64 | None
    high_s: Float64 | None
    predicted_gbs: Float64 | None
    limit: String | None
    start_share: Float64 | None
    dispatch_share: Float64 | None
    service_share: Float64 | None
    waiting_share: Float64 | None
    l2_share: Float64 | None
    dram_share: Float64 | None
    resident_blocks: Int32 | None
    known_kernel: Annotated[
        Bool, Meaning("whether cells of the kernel were in the fit; of others the band is wider")
    ]
    message: Annotated[
        String | None, Meaning("why there is no such launch; null where there is one")
    ]


@dataclass(frozen=True)
class Prediction:
    """Predicted time of a launch, and the resource that limits it.

    Attributes
    ----------
    seconds
        Predicted time in seconds.
    low_s, high_s
        Band in seconds that contained 90 % of the launches of such kernels, or None if it is not
        known.
    gbs
        Predicted bandwidth in GB/s.
    limit
        Name of the resource that alone would take longest.
    shares
        Time that each resource alone would take, by name, as a share of the longest.
    resident
        Number of blocks that fit on a multiprocessor.
    known_kernel
        Whether the model was fitted to cells of this kernel. Otherwise the band is wider.
    device
        Name of the device.
    row
        The prediction as a data frame with one row, with the columns of `PredictedLaunch`.
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
    row: pd.DataFrame = field(compare=False, repr=False)

    @classmethod
    def of(cls, row: pd.DataFrame) -> Prediction:
        """Return the prediction from the only row of a frame."""
        said = row.astype(object).where(row.notna(), None).iloc[0]
        return cls(
            seconds=said["predicted_s"],
            low_s=said["low_s"],
            high_s=said["high_s"],
            gbs=said["predicted_gbs"],
            limit=said["limit"],
            shares={name: said[f"{name.lower()}_share"] for name in LIMITS},
            resident=said["resident_blocks"],
            known_kernel=said["known_kernel"],
            device=said["device_name"],
            row=row,
        )

    def __str__(self) -> str:
        """Return the time with its band, and the limits in order of their times."""
        ends = [seconds(end) for end in (self.low_s, self.high_s) if end is not None]
        band = f" ({' to '.join(ends)}, 90 %)" if ends else ""
        limits = sorted(self.shares.items(), key=lambda item: -item[1])
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in limits)
        return (
            f"{self.device}: {seconds(self.seconds)} a launch{band}, {gbs(self.gbs)}, limited by "
            f"{self.limit}\nTimes of the limits alone: {shares}"
        )


@overload
def predict(
    kernel: str | os.PathLike[str],
    *,
    dtype: str,
    size: int | tuple[int, int],
    axes: Mapping[str, Any],
    variant: str | None = None,
    cache: str = CACHE_STATES[0],
    model: str | os.PathLike[str] | None = None,
    **params: int,
) -> pd.DataFrame: ...


@overload
def predict(
    kernel: str | os.PathLike[str],
    *,
    dtype: str,
    size: int | tuple[int, int],
    axes: None = None,
    variant: str | None = None,
    cache: str = CACHE_STATES[0],
    model: str | os.PathLike[str] | None = None,
    **params: int,
) -> Prediction: ...


@raises_at_caller
def predict(
    kernel: str | os.PathLike[str],
    *,
    dtype: str,
    size: int | tuple[int, int],
    axes: Mapping[str, Any] | None = None,
    variant: str | None = None,
    cache: str = CACHE_STATES[0],
    model: str | os.PathLike[str] | None = None,
    **params: int,
) -> Prediction | pd.DataFrame:
    """Predict the times of a kernel's launches with the fitted model of a device.

    The device need not be present. gpushmoo compiles each version of the kernel once, which
    requires NVRTC.

    Parameters
    ----------
    kernel : path
        Folder of the kernel.
    dtype, variant, cache : str
        Element type, variant (by default the kernel's first), and cache state: ``warm`` or
        ``flushed``.
    size : int or (int, int)
        Size of the problem, or its height and width.
    axes : mapping
        Launch parameters with several values: ``{"block_x": [32, 64]}``, or a range ``{"block_x":
        {"from": 4, "to": 64, "step": 4}}``.
    model : path
        File ``model/device.json`` of a run, by default the model of an NVIDIA H200.
    **params : int
        Launch parameters with one value. All parameters of the kernel must be given, here or in
        `axes`.

    Returns
    -------
    Prediction or DataFrame
        Without `axes`, a prediction: `seconds`, the band `low_s` to `high_s`, `gbs` and `limit`.
        With `axes`, a frame with a row for each combination, the fastest first: `predicted_s`,
        `low_s`, `high_s`, `predicted_gbs`, `limit` and its shares. `message` gives the reason if a
        launch is not possible.

    Raises
    ------
    ConfigError
        If no launch can be predicted. It is a ValueError.
    DeviceError
        If there is no compiler, or if it rejects the kernel.
    """
    fitted = _model(KNOWN if model is None else Path(model))
    folder = loaded(kernel)
    specs = {**(axes or {}), **params}
    cells = _cells(folder, dtype, variant, size, cache, specs)
    found = _predicted(folder, fitted, cells)
    return Prediction.of(found) if axes is None else found


def fastest(found: pd.DataFrame, axes: Iterable[str], most: int) -> str:
    """Return the fastest launches of a frame of `predict` as a table.

    Values that all rows share are in a line above it.

    Parameters
    ----------
    found
        The frame, the fastest launch first.
    axes
        Names of the launch parameters to show.
    most
        Largest number of rows.
    """
    first = found.iloc[0]
    size = size_words(first["height"], first["width"])
    what = ", ".join([first["dtype"], first["variant"], size, first["cache_state"]])
    top = found[found["predicted_s"].notna()].head(most)
    shown = top[in_order(axes)].assign(
        time=[*map(seconds, top["predicted_s"])],
        **{"GB/s": [*map(significant, top["predicted_gbs"])], "limited by": top["limit"]},
    )
    if top["low_s"].notna().all():
        ends = zip(top["low_s"], top["high_s"], strict=True)
        shown.insert(
            shown.columns.get_loc("GB/s"),
            "90 % band",
            [f"{seconds(a)} to {seconds(b)}" for a, b in ends],
        )
    lines = [f"{first['device_name']}, {what}: {len(found)} launches, the fastest of them:", ""]
    lines.append(aligned(shown))
    reasons = found["message"].dropna()
    if len(reasons):
        lines.append(f"\n{len(reasons)} cannot be, the first since: {reasons.iloc[0]}")
    return "\n".join(lines)


def _predicted(folder: KernelFolder, fitted: Mapping[str, Any], cells: list[Cell]) -> pd.DataFrame:
    """Return a row for each cell, the fastest first, or raise an error if no cell has a time."""
    workload = folder.workload
    arch = fitted["arch"]
    possible = [cell for cell in cells if workload.valid(cell) is None]
    codes = _compiled(folder, dict.fromkeys(map(workload.version, possible)), cells[0].dtype, arch)
    paths = {
        (folder.name, cells[0].dtype, version.name, entry): code.path
        for version, codes_of in codes.items()
        if not isinstance(codes_of, BuildError)
        for entry, code in codes_of.items()
        if code.path
    }
    describer = Describer({folder.name: workload}, paths, DeviceFacts(**fitted["facts"]))
    asked = [_asked(cell, codes, describer, arch) for cell in cells]
    described = {i: one for i, one in enumerate(asked) if not isinstance(one, UserError)}
    if not described:
        raise next(one for one in asked if isinstance(one, UserError))
    launches = pd.DataFrame(described.values(), index=pd.Index(described))
    bands = Bands(fitted["bands"]["of_kernel"], fitted["bands"]["of_others"])
    half = bands.half_width(folder.name)
    device = Model({name: p["value"] for name, p in fitted["parameters"].items()})
    said = device.said(Launches.of(launches), float("nan") if half is None else half)
    rows = pd.DataFrame(
        {
            "device_name": fitted["device"],
            **{c: getattr(cell, c) for c in ("kernel", "dtype", "variant", "cache_state")},
            **{c: getattr(cell.problem, c) for c in ("height", "width")},
            **dict(cell.params),
        }
        for cell in cells
    )
    rows = rows.join(pd.DataFrame(said, index=launches.index))
    rows["resident_blocks"] = launches["resident"].astype("Int64")
    rows["known_kernel"] = folder.name in bands.of_kernel
    messages = [str(one) if isinstance(one, UserError) else None for one in asked]
    rows["message"] = pd.Series(messages, dtype=object)
    return rows.sort_values("predicted_s", kind="stable", ignore_index=True)


def _compiled(folder: KernelFolder, versions: Iterable[Version], dtype: str, arch: str) -> Codes:
    cache = kept_for_calls()

    def compiled(version: Version) -> Mapping[str, EntryCode] | BuildError:
        try:
            return version_code(folder, dtype, version, arch, cache)
        except BuildError as err:
            return err

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(versions, pool.map(compiled, versions), strict=True))


def _asked(
    cell: Cell, codes: Codes, describer: Describer, arch: str
) -> dict[str, float] | UserError:
    """Return the quantities of a launch that the model requires, or why they are not known."""
    workload = describer.workloads[cell.kernel]
    try:
        if (why := workload.valid(cell)) is not None:
            return ConfigError(f"There is no such launch: {why}.")
        launch = workload.launch(cell)
        found = codes[workload.version(cell)]
    except (LaunchConfigError, WorkloadError) as err:
        return ConfigError(f"There is no such launch: {err}")
    if isinstance(found, BuildError):
        return found
    if (code := found.get(launch.entry)) is None:
        return ConfigError(f"{cell.kernel}: there is no function '{launch.entry}' in its source.")
    shared = code.shared_bytes + launch.shared_bytes
    resident = resident_blocks(arch, launch.threads, code.registers, shared)
    if not resident:
        return ConfigError(f"No block of {launch.threads} threads fits a multiprocessor.")
    described = describer.launch(cell, resident, IN_A_SAMPLE[cell.cache_state])
    if isinstance(described, str):
        remedy = " Write `texels` in its workload.py." if described == UNTOLD else ""
        return ConfigError(f"{cell.kernel}: {described}, so the model says nothing of it.{remedy}")
    return described


def _model(path: Path) -> dict[str, Any]:
    """Return the first device in a file of fitted models that has parameters."""
    try:
        devices = read_json(path)["devices"]
    except OSError as err:
        raise ConfigError(
            f"model: '{path}' is not the model/device.json of a run ({err})."
        ) from err
    except (DamagedFileError, KeyError, TypeError) as err:
        # Another kind of file: a KeyError's text would be its suffix.
        raise ConfigError(
            f"model: '{path}' is not the model/device.json of a run; pass such a file."
        ) from err
    fitted = next((d for d in devices if "parameters" in d), None)
    if fitted is None:
        raise ConfigError(f"model: '{path}' has no device whose parameters were fitted.")
    if fitted["arch"] not in MULTIPROCESSORS:
        raise ConfigError(
            f"model: how many blocks {fitted['arch']} holds is not known; "
            f"{', '.join(sorted(MULTIPROCESSORS))} are."
        )
    return dict(fitted)


def _cells(
    folder: KernelFolder,
    dtype: str,
    variant: str | None,
    size: int | tuple[int, int],
    cache: str,
    specs: Mapping[str, Any],
) -> list[Cell]:
    """Return the cells to predict; raise ConfigError if there is no such cell."""
    workload = folder.workload
    chosen = variant or (workload.default_variants or workload.variants)[0]
    for what, value, allowed in (
        ("dtype", dtype, workload.dtypes),
        ("variant", chosen, workload.variants),
        ("cache", cache, CACHE_STATES),
    ):
        if value not in allowed:
            raise ConfigError(f"{what}: '{value}' is not one of {', '.join(allowed)}.")
    needed = {name for name, value in workload.axes.items() if value != 0}
    if not needed <= set(specs) <= set(workload.axes):
        names = ", ".join(sorted(workload.axes))
        example = " ".join(f"{name}=32" for name in sorted(workload.axes))
        raise ConfigError(
            f"The launch parameters of {folder.name} are {names}; name each once, such as "
            f"`--axes {example}`."
        )
    values = {}
    for name, spec in checked({"axes": specs})["axes"].items():
        if needs_device(spec):
            raise ConfigError(f"axes.{name}: what is resident is not known here; name numbers.")
        values[name] = expand_axis(spec, TYPICAL)
    problem = Problem(*size) if isinstance(size, tuple) else workload.problem(size)
    return enumerate_cells(folder.name, dtype, [chosen], [problem], values, [cache])
