"""The chapter's part in the plan of a run: its plots, and studies beside the sweeps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpushmoo.chapters.contract import Chapter, ChapterError, ChapterPlan, ChapterRun
from gpushmoo.core.backends import source_suffix
from gpushmoo.core.paths import ROOT
from gpushmoo.planning.digest import library_digest
from gpushmoo.workloads.loader import KernelFolder

from .studies import ERRORS, RIVALS, TIMELINE, Studies, StudyError, cell_params, read_studies

# The document's plots, by the kernel that can stand beside them.
PLOTS = {
    "dot_streamed": ("running_time", "throughput"),
    "dot_square": ("running_time_square", "throughput_square"),
}


@dataclass(frozen=True)
class StreamedPlan(ChapterPlan):
    """Files of the studies, by name of the study, what their jobs are told, and their kernels."""

    files: Mapping[str, str] | None = None
    jobs: Mapping[str, Mapping[str, Any]] | None = None
    kernels: Mapping[str, KernelFolder] | None = None

    def study_file(self, study: str) -> str:
        """What was measured for a study, here or where it was recorded."""
        return (self.files or {})[study]

    def study_params(self, study: str, device: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of a study's job on `device` (see `Flow.job_device`)."""
        params = {**device, **(self.jobs or {})[study]}
        suffix = source_suffix(device["backend"])
        digests = {n: (self.kernels or {})[n].digest(suffix) for n in params["folders"]}
        params["kernel_digests"] = digests
        return dict(sorted(params.items()))


class StreamedDotChapter(Chapter):
    """A dot product of data that live on the host, over several streams."""

    document = "Dot product on the GPU: Blocked Multistream Version"
    kernels = frozenset({"dot_streamed", "dot_square", "dot_host", "dot_resident", "dot_cublas"})
    tells = kernels

    def plan(self, options: Mapping[str, Any], run: ChapterRun) -> StreamedPlan:
        """The chapter's figures and studies, where a streamed kernel is swept.

        Of a recorded data set only the studies that were recorded with it.
        """
        # A page stands where one is streamed.
        if "dot_streamed" not in run.kernels:
            return StreamedPlan()
        recorded = options.get("recorded") if run.dataset is not None else None
        try:
            chosen = {**options, "recorded": recorded}
            studies = read_studies(chosen, run.kernels, run.seed, run.root)
        except StudyError as err:
            raise ChapterError(str(err)) from err
        files = _files(studies, run)
        plots = [plot for kernel in PLOTS if kernel in run.kernels for plot in PLOTS[kernel]]
        cells = studies.timelines if run.dataset is None else {}
        return StreamedPlan(
            figures=(*(f"dot-{plot}" for plot in plots), *(f"{study}-dot" for study in files)),
            measured=tuple(files.values()) if run.dataset is None else (),
            cells={f"chapters.streamed_dot.timeline.{n}": cell for n, cell in cells.items()},
            files=files,
            kernels=run.kernels,
            jobs={study: _job(study, studies, run.kernels) for study in files},
        )


def _files(studies: Studies, run: ChapterRun) -> dict[str, str]:
    """The file of each study that the run has."""
    wanted = {
        TIMELINE: bool(studies.timelines),
        ERRORS: studies.errors is not None,
        RIVALS: studies.rivals is not None,
    }
    names = [study for study, is_wanted in wanted.items() if is_wanted]
    if run.dataset is None:
        return {study: run.path("studies", f"{study}.parquet") for study in names}
    if studies.recorded is None:
        return {}
    paths = {study: studies.recorded / f"{study}.parquet" for study in names}
    return {study: os.path.relpath(path) for study, path in paths.items() if path.is_file()}


def _job(study: str, studies: Studies, kernels: Mapping[str, KernelFolder]) -> dict[str, Any]:
    """What the job of a study is told besides its device."""
    params: dict[str, Any] = {}
    if study == TIMELINE:
        used = {cell.kernel for cell in studies.timelines.values()}
        params["cells"] = {n: cell_params(c) for n, c in sorted(studies.timelines.items())}
    elif study == RIVALS:
        used = set(kernels) & {"dot_streamed", "dot_square"}
        assert studies.rivals is not None
        params["study"] = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(studies.rivals).items()
        }
    else:
        used = set(kernels) & StreamedDotChapter.kernels
        e = studies.errors
        assert e is not None
        params["study"] = {
            "sizes": list(e.sizes),
            "conditions": list(e.conditions),
            "length": e.length,
        }
    folders = {name: kernels[name] for name in sorted(used)}
    return params | {
        "folders": {n: os.path.relpath(f.path, ROOT) for n, f in folders.items()},
        "library": {n: library_digest(f.path / "workload.py") for n, f in folders.items()},
    }


CHAPTER = StreamedDotChapter()
