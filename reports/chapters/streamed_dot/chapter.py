"""Plan the chapter's part of a run: its plots, and studies besides the sweeps.

A study is a separate job that looks closely at streamed kernels: the times of copies and kernels in
single runs, the error of every way of computing, and a comparison of host and device within rounds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from gpushmoo.chapters import Chapter, ChapterPlan, ChapterRun
from gpushmoo.core.backends import source_suffix
from gpushmoo.core.errors import ChapterError, LaunchConfigError, UnreadableError
from gpushmoo.core.paths import ROOT
from gpushmoo.core.readable import refuse_braces
from gpushmoo.core.space import Cell
from gpushmoo.core.study_job import JobDevice
from gpushmoo.planning.digest import shared_digest
from gpushmoo.workloads.host_fed import HostFedWorkload
from gpushmoo.workloads.loader import KernelFolder

from . import ERRORS, RIVALS, TIMELINE, cell_of
from .options import Options

# The document's plots, by the kernel that is comparable with them.
PLOTS = {
    "dot_streamed": ("running_time", "throughput"),
    "dot_square": ("running_time_square", "throughput_square"),
}
# What one figure has room for.
MAX_TIMELINES = 3
HERE = Path(__file__).resolve().parent
# The code that the studies run on the device. It imports no other code of the chapter, so a change
# of a figure or a page measures nothing again.
STUDYING = tuple(
    HERE / f"{name}.py"
    for name in ("__init__", "numerics", "rivals", "study_job", "timeline", "today", "tracing")
)


@dataclass(frozen=True)
class StreamedPlan(ChapterPlan):
    """The `files` of the studies and the parameters of their `jobs`, by the study's name."""

    files: Mapping[str, str] = field(default_factory=dict)
    jobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    folders: Mapping[str, KernelFolder] = field(default_factory=dict)

    # The files of the code that does the studies.
    studying: ClassVar[tuple[Path, ...]] = STUDYING

    def study_params(self, study: str, device: JobDevice) -> dict[str, Any]:
        """Parameters of a study's job on `device`."""
        job = self.jobs[study]
        suffix = source_suffix(device.backend)
        digests = {name: self.folders[name].digest(suffix) for name in job["folders"]}
        return dict(sorted({**device.plain, **job, "kernel_digests": digests}.items()))


class StreamedDotChapter(Chapter):
    """A dot product of data that live on the host, over several streams."""

    document = "Dot product on the GPU: Blocked Multistream Version"
    options = Options
    kernels = frozenset({"dot_streamed", "dot_square", "dot_host", "dot_resident", "dot_cublas"})
    tells = kernels

    def plan(self, options: Mapping[str, Any], run: ChapterRun) -> StreamedPlan:
        """The chapter's figures and studies, where a streamed kernel is swept.

        Of a recorded data set only the studies that were recorded with it.
        """
        # A page stands where one is streamed.
        if "dot_streamed" not in run.kernels:
            return StreamedPlan()
        options = deepcopy(dict(options))
        timelines = _timelines(options.get("timeline") or {}, run.kernels)
        specs: dict[str, dict[str, Any]] = {
            TIMELINE: {"cells": {n: spec for n, (spec, _) in sorted(timelines.items())}},
            ERRORS: {"study": options.get("errors")},
            RIVALS: {"study": options.get("rivals")},
        }
        jobs = {
            study: spec | _kernels_of(study, timelines.values(), run.kernels)
            for study, spec in specs.items()
            if any(spec.values())
        }
        if run.dataset is None:
            files = {study: run.path("studies", f"{study}.parquet") for study in jobs}
        else:
            files = _recorded(options.get("recorded"), jobs, run.root)
        plots = [plot for kernel in PLOTS if kernel in run.kernels for plot in PLOTS[kernel]]
        cells = {f"chapters.streamed_dot.timeline.{n}": cell for n, (_, cell) in timelines.items()}
        return StreamedPlan(
            figures=(*(f"dot-{plot}" for plot in plots), *(f"{study}-dot" for study in files)),
            measured=tuple(files.values()) if run.dataset is None else (),
            cells=cells if run.dataset is None else {},
            files=files,
            jobs={study: jobs[study] for study in files},
            folders=run.kernels,
        )


Timeline = tuple[Mapping[str, Any], Cell]


def _kernels_of(
    study: str, timelines: Iterable[Timeline], kernels: Mapping[str, KernelFolder]
) -> dict[str, Any]:
    """Folders of the kernels that a study launches, and the digests of their Python code."""
    used = {
        TIMELINE: {cell.kernel for _, cell in timelines},
        ERRORS: StreamedDotChapter.kernels,
        RIVALS: PLOTS.keys(),
    }[study]
    folders = {name: kernels[name] for name in sorted(used & kernels.keys())}
    return {
        "folders": {n: os.path.relpath(f.path, ROOT) for n, f in folders.items()},
        "shared": {n: shared_digest(f.path) for n, f in folders.items()},
    }


def _recorded(value: str | None, studies: Iterable[str], root: Path) -> dict[str, str]:
    """Return the files of those `studies` that are in the folder `value`.

    Nothing without a folder.
    """
    if value is None:
        return {}
    key = "chapters.streamed_dot.recorded"
    path = root / os.path.expanduser(value)
    try:
        refuse_braces(value)
        usable = path.is_dir()
    except OSError as err:
        raise ChapterError(f"{key}: '{value}' cannot be read ({err.strerror})") from err
    except UnreadableError as err:
        raise ChapterError(f"{key}: {str(err).removesuffix('.')}") from err
    if not usable:
        raise ChapterError(f"{key}: '{value}' is not a folder")
    files = {study: path / f"{study}.parquet" for study in studies}
    return {study: os.path.relpath(file) for study, file in files.items() if file.is_file()}


def _timelines(
    specs: Mapping[str, Any], kernels: Mapping[str, KernelFolder]
) -> dict[str, Timeline]:
    """Specification and cell of each timeline of a swept kernel. Raises ChapterError."""
    key = "chapters.streamed_dot.timeline"
    specs = {n: spec for n, spec in specs.items() if spec is not None and spec["kernel"] in kernels}
    if len(specs) > MAX_TIMELINES:
        raise ChapterError(f"{key}: {len(specs)} cells; a figure has room for {MAX_TIMELINES}")
    for name, spec in specs.items():
        _check_timeline(f"{key}.{name}", spec, kernels[spec["kernel"]])
    return {name: (spec, cell_of(spec)) for name, spec in specs.items()}


def _check_timeline(key: str, spec: Mapping[str, Any], folder: KernelFolder) -> None:
    """Raise ChapterError, which names the key, for a cell that cannot be traced."""
    w = folder.workload
    axes = spec["axes"]
    if not isinstance(w, HostFedWorkload) or not w.device_code:
        raise ChapterError(f"{key}.kernel: '{w.name}' streams nothing to a device")
    for what, allowed in (("dtype", w.dtypes), ("variant", w.variants)):
        if spec[what] not in allowed:
            raise ChapterError(
                f"{key}.{what}: '{spec[what]}' is not known; allowed: {', '.join(allowed)}"
            )
    if set(axes) != set(w.axes):
        raise ChapterError(f"{key}.axes: each of {', '.join(w.axes)} must have one value")
    for axis, value in axes.items():
        low, high = 0 if axis in w.zero_axes else 1, w.most.get(axis, 2**28)
        if not low <= value <= high:
            raise ChapterError(f"{key}.axes.{axis} is {value}; it must be from {low} to {high}")
    if axes.get("host_percent") == 100:
        raise ChapterError(f"{key}.axes.host_percent is 100; of that nothing is streamed")
    try:
        w.pipeline(cell_of(spec))
    except LaunchConfigError as err:
        raise ChapterError(f"{key}.axes: {str(err).removesuffix('.')}") from err


CHAPTER = StreamedDotChapter()
