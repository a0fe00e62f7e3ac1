"""Studies beside the sweep: single runs of streamed kernels looked at closely, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpushmoo.core.errors import LaunchRefusedError
from gpushmoo.core.readable import UnreadableError, refuse_braces
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.host_fed import HostFedWorkload
from gpushmoo.workloads.loader import KernelFolder

from .numerics import Study
from .rivals import Rivals

# What one figure has room for.
MOST_TIMELINES = 3
TIMELINE, ERRORS, RIVALS = "timeline", "errors", "rivals"


class StudyError(ValueError):
    """A study is not possible as configured: one clause that names the key."""


@dataclass(frozen=True)
class Studies:
    """What the configuration asks for, of the kernels that the run sweeps.

    `timelines` are cells by name; `errors` and `rivals` are None where none are wanted. `recorded`
    is where the studies of a recorded data set lie.
    """

    timelines: Mapping[str, Cell]
    errors: Study | None
    rivals: Rivals | None
    recorded: Path | None


def read_studies(
    raw: Mapping[str, Any], folders: Mapping[str, KernelFolder], seed: int, root: Path
) -> Studies:
    """`raw` as the schema allows it; `folders` are those of the swept kernels, by name.

    A study of a kernel that is not swept is left out. Raises StudyError.
    """
    cells = {
        name: spec
        for name, spec in (raw.get("timeline") or {}).items()
        if spec is not None and spec["kernel"] in folders
    }
    if len(cells) > MOST_TIMELINES:
        raise StudyError(
            f"chapters.streamed_dot.timeline: {len(cells)} cells; a figure has room for "
            f"{MOST_TIMELINES}"
        )
    timelines = {
        name: _cell(f"chapters.streamed_dot.timeline.{name}", spec, folders[spec["kernel"]])
        for name, spec in cells.items()
    }
    return Studies(
        timelines,
        _errors(raw.get("errors"), seed),
        _rivals(raw.get("rivals"), seed),
        _recorded(raw.get("recorded"), root),
    )


def _recorded(value: str | None, root: Path) -> Path | None:
    if value is None:
        return None
    path = root / value
    try:
        usable = path.is_dir()
    except OSError as err:
        raise StudyError(
            f"chapters.streamed_dot.recorded: '{value}' cannot be read ({err.strerror})"
        ) from err
    if not usable:
        raise StudyError(f"chapters.streamed_dot.recorded: '{value}' is not a folder")
    try:
        refuse_braces(value)
    except UnreadableError as err:
        raise StudyError(f"chapters.streamed_dot.recorded: {str(err).removesuffix('.')}") from err
    return path


def _cell(key: str, spec: Mapping[str, Any], folder: KernelFolder) -> Cell:
    w = folder.workload
    if not isinstance(w, HostFedWorkload) or not w.device_code:
        raise StudyError(f"{key}.kernel: '{w.name}' streams nothing to a device")
    for what, allowed in (("dtype", w.dtypes), ("variant", w.variants)):
        if spec[what] not in allowed:
            raise StudyError(
                f"{key}.{what}: '{spec[what]}' is not known; allowed: {', '.join(allowed)}"
            )
    missing = sorted(set(w.axes) - set(spec["axes"]))
    if missing or set(spec["axes"]) - set(w.axes):
        raise StudyError(f"{key}.axes: each of {', '.join(w.axes)} must have one value")
    for axis, value in spec["axes"].items():
        low, high = 0 if axis in w.zero_axes else 1, w.most.get(axis, 2**28)
        if not low <= value <= high:
            raise StudyError(f"{key}.axes.{axis} is {value}; it must be from {low} to {high}")
    if spec["axes"].get("host_percent") == 100:
        raise StudyError(f"{key}.axes.host_percent is 100; of that nothing is streamed")
    params = tuple(sorted(spec["axes"].items()))
    cell = Cell(w.name, spec["dtype"], spec["variant"], Problem(1, spec["size"]), params)
    try:
        w.pipeline(cell)
    except LaunchRefusedError as err:
        raise StudyError(f"{key}.axes: {str(err).removesuffix('.')}") from err
    return cell


def _errors(raw: Mapping[str, Any] | None, seed: int) -> Study | None:
    if raw is None:
        return None
    return Study(
        sizes=tuple(raw["sizes"]),
        conditions=tuple(float(c) for c in raw["conditions"]),
        length=raw["condition_size"],
        seed=seed,
    )


def _rivals(raw: Mapping[str, Any] | None, seed: int) -> Rivals | None:
    if raw is None:
        return None
    lengths = {key: tuple(value) for key, value in raw.items() if key != "rounds"}
    return Rivals(**lengths, rounds=raw["rounds"], seed=seed)


def cell_params(cell: Cell) -> dict[str, Any]:
    """`cell` as plain values, for a rule's parameters."""
    return {
        "axes": dict(cell.params),
        "dtype": cell.dtype,
        "kernel": cell.kernel,
        "size": cell.problem.width,
        "variant": cell.variant,
    }


def cell_of(params: Mapping[str, Any]) -> Cell:
    """The cell that `cell_params` made `params` of."""
    axes = tuple(sorted(params["axes"].items()))
    size = Problem(1, params["size"])
    return Cell(params["kernel"], params["dtype"], params["variant"], size, axes)
