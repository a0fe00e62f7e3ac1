"""What the rule files ask: the run's files, each job's parameters, digests. No job runs here."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..core.backends import AUTO, BACKENDS, Backend, source_suffix
from ..core.build_job import BuildJob
from ..core.figure_job import FigureJob
from ..core.paths import RESULTS, ROOT, cache_folder
from ..core.run_plan import PLAN_FILE, RunPlan
from ..core.shard_job import ShardJob
from ..core.study_job import JobDevice, StudyJob
from ..devices.select import DeviceChoice, resolve
from ..registry import Section, extra_sections, extras
from ..storage.store import unpacked
from ..workloads.contract import Workload
from ..workloads.host_fed import HostFedWorkload
from ..workloads.sizes import Room
from .config import RunConfig, check_memory, load_config, own_studies
from .digest import code_of, shared_digest, template_digest
from .plan import (
    CompilerChoice,
    FigureSpec,
    Shard,
    budget_of,
    build_job,
    figures_of,
    named_shard,
    plan_shards,
    run_plan,
)
from .sweeps import on_device, refuse_timing_modes, resolved_sentence

# Does the measuring jobs.
MEASURING = "gpushmoo.measuring.job"
# How busy the units of the device were, of a run or recorded with its shards.
COUNTED = "counters.json"
# What a comparison and a history write, each in a folder of its name.
COMPARISON = (
    "cells.parquet",
    "groups.parquet",
    "drift.parquet",
    "summary.md",
    "changes.svg",
    "changes.json",
    "compare.pdf",
)
HISTORY = ("history.parquet", "summary.md")


class Flow:
    """A run as Snakemake sees it; paths are relative to the working directory."""

    def __init__(self, raw: Mapping[str, Any], ask_device: bool, results: Path = RESULTS) -> None:
        """Check the configuration; with `ask_device` resolve ``backend: auto`` on this host."""
        self.config: RunConfig = load_config(raw, ROOT, results)
        self.shards: list[Shard] = [] if self.config.dataset else plan_shards(self.config)
        self.results = self.config.results
        # With their sizes on the device, and a sentence on these, once it was asked.
        self.sweeps_here = self.config.sweeps
        self.sizes_here: str | None = None
        self.choice = DeviceChoice(
            self.config.settings.backend,
            0 if self.config.settings.device == "all" else int(self.config.settings.device),
            self.config.settings.opencl_runtime,
            cache_folder(self.results),
        )
        if self.config.device_memory is not None:
            check_memory(self.config, self.config.device_memory, self.config.device_memory)
        elif ask_device and self.config.settings.backend == AUTO and self.measures:
            self.choice, info = resolve(self.choice)
            check_memory(self.config, info.global_memory, info.max_allocation)
            refuse_timing_modes(self.config.sweeps, self.choice.backend)
            room = Room(info.cache, info.kind == "cpu", info.global_memory, info.max_allocation)
            self.sweeps_here = on_device(self.config.sweeps, room)
            self.sizes_here = resolved_sentence(self.config.sweeps, room, info.name)

    @property
    def measures(self) -> bool:
        """Whether anything is to be measured, and not only what was is shown or compared."""
        return self.config.dataset is None and self.config.compared is None

    def path(self, *parts: str) -> str:
        """A path inside the run's folder."""
        return str(self.results.joinpath(*parts))

    @property
    def dataset(self) -> str:
        """The data set's folder, which a stage replaces: so not a mount itself, but within it."""
        folder = self.path("dataset")
        return os.path.join(folder, "data") if os.path.ismount(folder) else folder

    # Measuring

    @cached_property
    def shard_files(self) -> list[str]:
        """The raw shards: measured ones, or those of a recorded data set."""
        if self.config.dataset is not None:
            shards = unpacked(self.config.dataset)
            return sorted(os.path.relpath(p) for p in shards.rglob("*.parquet"))
        return [self.path("cells", s.path) for s in self.shards]

    def first_repeat(self, wildcards: Any) -> str:
        """The file of the first repeat, which a later one needs: both measure the same cells."""
        return self.path("cells", replace(named_shard(wildcards), repeat=1).path)

    @cached_property
    def plan(self) -> RunPlan:
        """The measuring job of each shard of the run."""
        return run_plan(self.config, self.choice.backend, self.choice.runtime)

    def job(self, wildcards: Any) -> ShardJob:
        """The measuring job that the wildcards name."""
        shard = named_shard(wildcards)
        return self.plan.sweeps[shard.sweep][shard.dtype].job.part(shard.index, shard.repeat)

    def measure_request(self, wildcards: Any, output: Any) -> str:
        """Return the request to measure a shard, as JSON without the paths of the shard's files.

        The JSON has the values of `ShardRequest` except `out`, `log`, `first` and `build`, which
        `measuring.client` adds.

        Parameters
        ----------
        wildcards
            Snakemake's wildcards, which name the shard.
        output
            Not used. If a parameter's function takes `output`, Snakemake does not compare its value
            with that of the last run. So a changed request alone does not measure again.
        """
        code = code_of("measuring"), self.shared_code(wildcards)
        request = {
            "job": self.job(wildcards).plain,
            "place": self.shard_place(wildcards),
            "remeasure": sorted(self.config.remeasure),
            "cache": self.cache,
            "code": " ".join(code),
            "plan": self.path(PLAN_FILE),
            # By the cells that there are on the device, if it is known.
            "seconds": budget_of(
                replace(self.config, sweeps=self.sweeps_here), named_shard(wildcards)
            ),
        }
        return json.dumps(request)

    def shared_code(self, wildcards: Any) -> str:
        """Digest of the code that the swept kernel shares with others."""
        return shared_digest(self.config.sweeps[wildcards.sweep].folder.path)

    @property
    def backend(self) -> Backend | None:
        """The record of the run's backend; None as long as ``auto`` is not resolved."""
        return BACKENDS.get(self.choice.backend)

    @property
    def gpu_backend(self) -> Backend | None:
        """The backend whose GPUs the measuring jobs take; None where they take none."""
        if self.config.dataset is not None or self.backend is None:
            return None
        return self.backend if self.backend.claims_gpu else None

    @property
    def build_files(self) -> list[str]:
        """The build file of every sweep and dtype that has code to build."""
        return [
            self.path("builds", name, f"{dtype}.json")
            for name, sweep in self.config.sweeps.items()
            if sweep.folder.workload.device_code
            for dtype in sweep.dtypes
        ]

    def build_file(self, wildcards: Any) -> str | list[str]:
        """The build file that a measuring job loads; none ([]) of a kernel without such code."""
        if not self.config.sweeps[wildcards.sweep].folder.workload.device_code:
            return []
        return self.path("builds", wildcards.sweep, f"{wildcards.dtype}.json")

    def build_job(self, wildcards: Any) -> BuildJob:
        """The job that compiles the kernel of a sweep for an element type."""
        compiler = CompilerChoice(
            backend=self.choice.backend,
            device=self.config.settings.device,
            opencl_runtime=self.choice.runtime,
            cuda_arch=self.config.settings.cuda_arch,
            compile_timeout_s=self.config.settings.measure.compile_timeout_s,
        )
        return build_job(self.config.sweeps[wildcards.sweep], wildcards.dtype, compiler)

    def build_threads(self, wildcards: Any) -> int:
        """A share of this host's cores for each build, of which all may run at once."""
        share = self.all_cores // len(self.build_files)
        versions = self.config.sweeps[wildcards.sweep].versions[wildcards.dtype]
        return max(1, min(share, len(versions)))

    def measure_threads(self, wildcards: Any) -> int:
        """Cores that a job claims: all where it measures the host, to run alone; else 1."""
        workload = self.config.sweeps[wildcards.sweep].folder.workload
        claims_gpu = self.backend is not None and self.backend.claims_gpu
        return 1 if claims_gpu and not isinstance(workload, HostFedWorkload) else self.all_cores

    @property
    def all_cores(self) -> int:
        """Number of cores of this host; 1 where the operating system does not say."""
        return os.cpu_count() or 1

    def shard_place(self, wildcards: Any) -> tuple[int, int]:
        """Number (from 1) of the shard that a measuring job makes, and how many there are."""
        return self._shard_numbers[named_shard(wildcards).path], len(self.shards)

    @cached_property
    def _shard_numbers(self) -> dict[str, int]:
        # By name, not by output: where results go to a storage that is a local copy's path.
        return {shard.path: number for number, shard in enumerate(self.shards, start=1)}

    @property
    def cache(self) -> str:
        """The folder in which device runtimes keep compiled code."""
        return str(cache_folder(self.results))

    # Kernels

    @cached_property
    def workloads(self) -> dict[str, Workload]:
        """The workload of every kernel that is swept, by its name."""
        folders = [s.folder for s in self.config.sweeps.values()]
        return {f.name: f.workload for f in sorted(folders, key=lambda f: f.name)}

    @property
    def swept(self) -> dict[str, dict[str, Any]]:
        """Kernel, dtypes and dimensions of each sweep, apart from its axes."""
        return {
            name: {"kernel": s.folder.name, "dtypes": list(s.dtypes), **s.as_plain}
            for name, s in self.config.sweeps.items()
        }

    @property
    def peak_kernels(self) -> dict[str, str]:
        """Kernels that measure how fast the device can ``load``, ``store`` or ``work``."""
        return {n: w.peak for n, w in self.workloads.items() if w.peak is not None}

    @property
    def limits(self) -> dict[str, Any]:
        """The largest value that a kernel takes of an axis, and the most threads of a block."""
        most = {n: dict(sorted(w.most.items())) for n, w in self.workloads.items() if w.most}
        return {"most": most, "threads": self.config.settings.thread_limit or 1024}

    @property
    def kernel_places(self) -> dict[str, str]:
        """Folders of the swept kernels, by name."""
        folders = [s.folder for s in self.config.sweeps.values()]
        return {f.name: os.path.relpath(f.path, ROOT) for f in folders}

    @property
    def workload_code(self) -> dict[str, list[str]]:
        """Digests of the Python code of the swept kernels, by name."""
        folders = [s.folder for s in self.config.sweeps.values()]
        return {f.name: [f.digest(None), shared_digest(f.path)] for f in folders}

    @property
    def host_fed_kernels(self) -> list[str]:
        """Kernels whose data come from the host."""
        return [n for n, w in self.workloads.items() if isinstance(w, HostFedWorkload)]

    # Studies

    @property
    def study_files(self) -> list[str]:
        """The files of the studies that the configuration names."""
        names = own_studies(self.config.settings)
        return [self.path("studies", f"{name}.parquet") for name in names]

    @property
    def counted_files(self) -> list[str]:
        """What was counted of launches: by the run itself, or beside recorded shards."""
        if "counters" in self.config.settings.studies:
            return [self.path("studies", COUNTED)]
        return self.recorded_beside(COUNTED)

    @property
    def study_job(self) -> StudyJob:
        """The job of a study of the run's kernels."""
        folders = {s.folder.name: s.folder for s in self.config.sweeps.values()}
        suffix = source_suffix(self.choice.backend)
        kernels = {name: folder.digest(suffix) for name, folder in sorted(folders.items())}
        return StudyJob(device=self.job_device, kernels=kernels, folders=self.kernel_places)

    def recorded_beside(self, name: str) -> list[str]:
        """The file `name` of a recorded data set, if it has one."""
        found = self.config.dataset and self.config.dataset / name
        return [os.path.relpath(found)] if found and found.is_file() else []

    # Other runs

    @property
    def comparison_files(self) -> list[str]:
        """What the target ``compare`` writes, but for its page of all cells."""
        return [self.path("compare", name) for name in COMPARISON]

    def compare_target(self, wildcards: Any) -> list[str]:
        """What ``compare`` asks for. Raises SystemExit with a sentence where no runs are named."""
        if self.config.compared is None:
            raise SystemExit(
                "gpushmoo: compare needs two runs: snakemake compare --config "
                "before=results/one after=results/other"
            )
        last = ["regression.txt"] * self.config.settings.fail_on_regression
        files = [*self.comparison_files, *self.extra_compared]
        return [*files, *(self.path("compare", name) for name in last)]

    @property
    def compared_files(self) -> list[str]:
        """The Parquet files of all compared data sets."""
        sides = self.config.compared or {"a": [], "b": [], "noise_runs": []}
        return data_files([*sides["a"], *sides["b"], *sides["noise_runs"]])

    @property
    def history_tables(self) -> list[str]:
        """What the stage of history writes."""
        return [self.path("history", name) for name in HISTORY]

    @property
    def history_files(self) -> list[str]:
        """Return the history's tables if the configuration asks for a history."""
        return self.history_tables if self.config.earlier is not None else []

    @property
    def earlier_files(self) -> list[str]:
        """Return the Parquet files of the earlier runs that the key ``history`` selects.

        The extra ``history`` compares this run with them. The list is empty if the key is not set.
        """
        return data_files(self.config.earlier or [])

    # Analysis

    def chapter_folder(self, chapter: str) -> Path:
        """The folder of a chapter of this run."""
        return self.config.chapters[chapter].folder.path

    def plan_of(self, chapter: str) -> Any:
        """What the chapter adds to the run: a ChapterPlan, of a class of the chapter's own."""
        return self.config.chapters[chapter].plan

    @property
    def chapter_products(self) -> list[str]:
        """Files of chapters that are beside the report."""
        return [file for c in self.config.chapters.values() for file in c.plan.products]

    @property
    def extra_products(self) -> list[str]:
        """Files of extras that are beside the report."""
        return [self.path(name) for extra in extras().values() for name in extra.products]

    @property
    def extra_compared(self) -> list[str]:
        """Files that extras add to a comparison of runs."""
        names = [name for extra in extras().values() for name in extra.compared]
        return [self.path("compare", name) for name in names]

    @property
    def job_device(self) -> JobDevice:
        """The device of jobs that measure beside the sweeps."""
        return JobDevice(
            backend=self.choice.backend,
            device=self.config.settings.device,
            opencl_runtime=self.choice.runtime,
            seed=self.config.settings.seed,
        )

    @property
    def device_models(self) -> list[str]:
        """What the model of a device found; nothing where the backend tells too little for it."""
        told = self.backend is not None and self.backend.tells_occupancy
        return [self.path("model", "device.json")] if self.config.dataset or told else []

    @property
    def device_cells(self) -> list[str]:
        """What that model says of each cell."""
        return [str(Path(file).with_suffix(".parquet")) for file in self.device_models]

    # Figures

    @cached_property
    def figures(self) -> list[FigureSpec]:
        """Figures of measured cells, in the order of the report."""
        figures = [
            figure
            for sweep in self.config.sweeps.values()
            for figure in figures_of(sweep, self.choice.backend)
        ]
        # Sweeps of one kernel share the figures over all sizes.
        return list({f.name: f for f in figures}.values())

    @property
    def section_figures(self) -> list[str]:
        """The names of the figures in sections of the report that extras add to this run."""
        return [section.figure for section in self._sections.values()]

    @property
    def _sections(self) -> dict[str, Section]:
        """The sections of the report that extras add to this run, by the extra's name."""
        return {n: section for n, section in extra_sections().items() if section.files(self)}

    def section_inputs(self, wildcards: Any) -> dict[str, list[str]]:
        """The files that extras' sections of the report are made of."""
        return {f"of_{name}": [*s.files(self)] for name, s in self._sections.items()}

    @property
    def figure_files(self) -> list[str]:
        """SVG files of all figures of the report: of measured cells, of extras, and of chapters."""
        chapters = [name for c in self.config.chapters.values() for name in c.plan.figures]
        names = [*(f.name for f in self.figures), *self.section_figures, *chapters]
        return [self.path("figures", f"{n}.svg") for n in names]

    def figure(self, wildcards: Any) -> FigureSpec:
        """The figure of measured cells that the wildcards name."""
        return next(f for f in self.figures if f.name == wildcards.figure)

    def figure_inputs(self, wildcards: Any) -> dict[str, str]:
        """The files that a figure is drawn from, by name."""
        needs = self.figure(wildcards).view.needs
        files = {"dataset": self.dataset, "peak": self.path("summary", "peak.json")}
        if "device" in needs and self.device_cells:
            files["device"] = self.device_cells[0]
        return files

    def figure_job(self, wildcards: Any) -> FigureJob:
        """The job that draws the figure that the wildcards name."""
        spec = self.figure(wildcards)
        sweeps = self.config.sweeps.values()
        met = {
            "cache_state": {state for s in sweeps for state in s.cache_states},
            "timing_mode": {kind for s in sweeps for kind in s.timing_modes},
        }
        return FigureJob(
            folder=os.path.relpath(spec.folder.path, ROOT),
            view=spec.view.name,
            where=spec.where,
            nearest=spec.nearest,
            dtypes=list(spec.dtypes),
            controls=list(spec.folder.workload.controls),
            # If all of the run is in one state, a title need not name it.
            named=[column for column, values in met.items() if len(values) > 1],
        )

    def report_params(self, wildcards: Any) -> dict[str, Any]:
        """The report's parameters; `sections` are figures' files by their heading."""
        sections: dict[str, list[str]] = {}
        for figure in self.figures:
            sections.setdefault(figure.view.section(), []).append(f"{figure.name}.svg")
        return {
            "run": self.config.settings.run,
            "sections": sections,
            "figure_kernels": {f"{f.name}.svg": f.folder.name for f in self.figures},
            "kernels": {
                n: {"title": w.title, "pattern": w.pattern, "controls": list(w.controls)}
                for n, w in self.workloads.items()
            },
            "persistent": [n for n, w in self.workloads.items() if w.persistent_axis],
            "host_fed": self.host_fed_kernels,
            "recorded": self.config.dataset is not None,
            "seed": self.config.settings.seed,
            "extras": {name: f"of_{name}" for name in self._sections},
            "cells_page": next((e.cells_page for e in extras().values() if e.cells_page), None),
            "chapters": {n: c.page_params(self.results) for n, c in self.config.chapters.items()},
        }

    def template_digest(self) -> str:
        """Digest of the report's templates, its chapters', and what their documents print."""
        return template_digest(c.folder.path for c in self.config.chapters.values())


def data_files(folders: Iterable[str]) -> list[str]:
    """The Parquet files of the data sets in these folders, finished or recorded; no shards."""
    files: list[Path] = []
    for folder in map(Path, folders):
        if (folder / "dataset").is_dir():
            files += sorted((folder / "dataset").rglob("*.parquet"))
        elif not (folder / PLAN_FILE).is_file():
            files += sorted(unpacked(folder).rglob("*.parquet"))
    return [str(file) for file in dict.fromkeys(files)]
