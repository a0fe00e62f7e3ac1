"""Give Snakemake's rules the files of a run, the parameters of each job, and digests of code.

This module runs no job.
"""

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
    """A run as Snakemake's rules see it. All paths are relative to the working directory.

    Parameters
    ----------
    raw
        The merged configuration.
    ask_device
        Whether to open a device to resolve ``backend: auto`` on this host.
    results
        Folder of the folders of all runs.

    Raises
    ------
    ConfigError
        If the configuration has a fault.
    NoDeviceError
        If a device is required on this host and no backend finds one.
    """

    def __init__(self, raw: Mapping[str, Any], ask_device: bool, results: Path = RESULTS) -> None:
        """Check the configuration, and resolve ``backend: auto`` if `ask_device` is set."""
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
        """Whether the run measures cells, and does not only show or compare existing results."""
        return self.config.dataset is None and self.config.compared is None

    def path(self, *parts: str) -> str:
        """Return the path of a file in the run's folder. The last of `parts` is the file's name."""
        return str(self.results.joinpath(*parts))

    @property
    def dataset(self) -> str:
        """Folder of the aggregated cells.

        A stage replaces the whole folder. If ``dataset`` is a mount, which cannot be replaced, this
        is a folder in it.
        """
        folder = self.path("dataset")
        return os.path.join(folder, "data") if os.path.ismount(folder) else folder

    # Measuring

    @cached_property
    def shard_files(self) -> list[str]:
        """Paths of the raw shards that the run measures, or of those in a recorded data set."""
        if self.config.dataset is not None:
            shards = unpacked(self.config.dataset)
            return sorted(os.path.relpath(p) for p in shards.rglob("*.parquet"))
        return [self.path("cells", s.path) for s in self.shards]

    def first_repeat(self, wildcards: Any) -> str:
        """Return the path of the same shard's first repeat.

        A job of a later repeat reads it, because all repeats measure the same cells.
        """
        return self.path("cells", replace(named_shard(wildcards), repeat=1).path)

    @cached_property
    def plan(self) -> RunPlan:
        """The measuring jobs of all shards of the run."""
        return run_plan(self.config, self.choice.backend, self.choice.runtime)

    def job(self, wildcards: Any) -> ShardJob:
        """Return the measuring job of the shard that Snakemake's `wildcards` name."""
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
        """Return a digest of the modules that the swept kernel imports from outside its folder."""
        return shared_digest(self.config.sweeps[wildcards.sweep].folder.path)

    @property
    def backend(self) -> Backend | None:
        """Properties of the run's backend, or None as long as ``auto`` is not resolved."""
        return BACKENDS.get(self.choice.backend)

    @property
    def gpu_backend(self) -> Backend | None:
        """The run's backend if each measuring job claims one of its GPUs, otherwise None."""
        if self.config.dataset is not None or self.backend is None:
            return None
        return self.backend if self.backend.claims_gpu else None

    @property
    def build_files(self) -> list[str]:
        """Paths of the build files: one for each sweep and element type with code to compile."""
        return [
            self.path("builds", name, f"{dtype}.json")
            for name, sweep in self.config.sweeps.items()
            if sweep.folder.workload.device_code
            for dtype in sweep.dtypes
        ]

    def build_file(self, wildcards: Any) -> str | list[str]:
        """Return the path of the build file that a measuring job loads.

        The result is an empty list, which means no input to Snakemake, if the kernel has nothing to
        compile.
        """
        if not self.config.sweeps[wildcards.sweep].folder.workload.device_code:
            return []
        return self.path("builds", wildcards.sweep, f"{wildcards.dtype}.json")

    def build_job(self, wildcards: Any) -> BuildJob:
        """Return the job that compiles the kernel of a sweep for one element type."""
        compiler = CompilerChoice(
            backend=self.choice.backend,
            device=self.config.settings.device,
            opencl_runtime=self.choice.runtime,
            cuda_arch=self.config.settings.cuda_arch,
            compile_timeout_s=self.config.settings.measure.compile_timeout_s,
        )
        return build_job(self.config.sweeps[wildcards.sweep], wildcards.dtype, compiler)

    def build_threads(self, wildcards: Any) -> int:
        """Return the number of threads of a build: the cores of this host divided among all builds.

        All builds may run at the same time. A build never uses more threads than it has versions to
        compile.
        """
        share = self.all_cores // len(self.build_files)
        versions = self.config.sweeps[wildcards.sweep].versions[wildcards.dtype]
        return max(1, min(share, len(versions)))

    def measure_threads(self, wildcards: Any) -> int:
        """Return the number of cores that a measuring job claims.

        A job that measures the host, or a kernel whose data the host streams, claims all cores. So
        no other job runs at the same time.
        """
        workload = self.config.sweeps[wildcards.sweep].folder.workload
        claims_gpu = self.backend is not None and self.backend.claims_gpu
        return 1 if claims_gpu and not isinstance(workload, HostFedWorkload) else self.all_cores

    @property
    def all_cores(self) -> int:
        """Number of cores of this host, or 1 if the operating system does not report it."""
        return os.cpu_count() or 1

    def shard_place(self, wildcards: Any) -> tuple[int, int]:
        """Return the number of a measuring job's shard, from 1, and the number of all shards."""
        return self._shard_numbers[named_shard(wildcards).path], len(self.shards)

    @cached_property
    def _shard_numbers(self) -> dict[str, int]:
        # By name, not by output: where results go to a storage that is a local copy's path.
        return {shard.path: number for number, shard in enumerate(self.shards, start=1)}

    @property
    def cache(self) -> str:
        """Folder in which the device's runtime caches compiled code."""
        return str(cache_folder(self.results))

    # Kernels

    @cached_property
    def workloads(self) -> dict[str, Workload]:
        """Workloads of all swept kernels, by name of the kernel."""
        folders = [s.folder for s in self.config.sweeps.values()]
        return {f.name: f.workload for f in sorted(folders, key=lambda f: f.name)}

    @property
    def swept(self) -> dict[str, dict[str, Any]]:
        """Kernel, element types, sizes, variants and conditions of each sweep, by its name."""
        return {
            name: {"kernel": s.folder.name, "dtypes": list(s.dtypes), **s.as_plain}
            for name, s in self.config.sweeps.items()
        }

    @property
    def peak_kernels(self) -> dict[str, str]:
        """Kernels that measure a limit of the device, by name.

        The values are ``load`` and ``store`` for bandwidths, and ``work`` for arithmetic.
        """
        return {n: w.peak for n, w in self.workloads.items() if w.peak is not None}

    @property
    def limits(self) -> dict[str, Any]:
        """Hard limits of the axes: ``most`` by kernel and axis, and the ``threads`` of a block."""
        most = {n: dict(sorted(w.most.items())) for n, w in self.workloads.items() if w.most}
        return {"most": most, "threads": self.config.settings.thread_limit or 1024}

    @property
    def kernel_places(self) -> dict[str, str]:
        """Folders of the swept kernels by name, relative to the project's root."""
        folders = [s.folder for s in self.config.sweeps.values()]
        return {f.name: os.path.relpath(f.path, ROOT) for f in folders}

    @property
    def workload_code(self) -> dict[str, list[str]]:
        """Digests of the Python code of each swept kernel, by name.

        The first digest covers the kernel's folder, the second the modules that it imports from
        outside.
        """
        folders = [s.folder for s in self.config.sweeps.values()]
        return {f.name: [f.digest(None), shared_digest(f.path)] for f in folders}

    @property
    def host_fed_kernels(self) -> list[str]:
        """Names of the kernels whose data the host streams to the device."""
        return [n for n, w in self.workloads.items() if isinstance(w, HostFedWorkload)]

    # Studies

    @property
    def study_files(self) -> list[str]:
        """Paths of the results of the studies that the configuration names."""
        names = own_studies(self.config.settings)
        return [self.path("studies", f"{name}.parquet") for name in names]

    @property
    def counted_files(self) -> list[str]:
        """Path of the file with hardware counters, as a list, empty without counters.

        The run measures them, or they are part of a recorded data set.
        """
        if "counters" in self.config.settings.studies:
            return [self.path("studies", COUNTED)]
        return self.recorded_beside(COUNTED)

    @property
    def study_job(self) -> StudyJob:
        """Job that measures the run's kernels for a study, such as hardware counters."""
        folders = {s.folder.name: s.folder for s in self.config.sweeps.values()}
        suffix = source_suffix(self.choice.backend)
        kernels = {name: folder.digest(suffix) for name, folder in sorted(folders.items())}
        return StudyJob(device=self.job_device, kernels=kernels, folders=self.kernel_places)

    def recorded_beside(self, name: str) -> list[str]:
        """Return the path of a recorded data set's file as a list, empty without the file."""
        found = self.config.dataset and self.config.dataset / name
        return [os.path.relpath(found)] if found and found.is_file() else []

    # Other runs

    @property
    def comparison_files(self) -> list[str]:
        """Paths of the files that the target ``compare`` writes, except those of extras."""
        return [self.path("compare", name) for name in COMPARISON]

    def compare_target(self, wildcards: Any) -> list[str]:
        """Return the files that the target ``compare`` makes.

        Raises
        ------
        SystemExit
            With one sentence, if the configuration names no runs to compare.
        """
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
        """Paths of the Parquet files of all runs that are compared."""
        sides = self.config.compared or {"a": [], "b": [], "noise_runs": []}
        return data_files([*sides["a"], *sides["b"], *sides["noise_runs"]])

    @property
    def history_tables(self) -> list[str]:
        """Paths of the files that the rule ``history`` writes."""
        return [self.path("history", name) for name in HISTORY]

    @property
    def history_files(self) -> list[str]:
        """Paths of the tables of the history, empty if the configuration names no earlier runs."""
        return self.history_tables if self.config.earlier is not None else []

    @property
    def earlier_files(self) -> list[str]:
        """Paths of the Parquet files of the earlier runs that the key ``history`` selects.

        The extra ``history`` compares this run with them. The list is empty if the key is not set.
        """
        return data_files(self.config.earlier or [])

    # Analysis

    def chapter_folder(self, chapter: str) -> Path:
        """Return the folder of a chapter by its name."""
        return self.config.chapters[chapter].folder.path

    def plan_of(self, chapter: str) -> Any:
        """Return the plan of a chapter: the files that it adds to the run.

        The type is Any, because a chapter may define a subclass of `ChapterPlan`, which its rules
        use.
        """
        return self.config.chapters[chapter].plan

    @property
    def chapter_products(self) -> list[str]:
        """Paths of files that chapters make in addition to the report."""
        return [file for c in self.config.chapters.values() for file in c.plan.products]

    @property
    def extra_products(self) -> list[str]:
        """Paths of files that extras make in addition to the report."""
        return [self.path(name) for extra in extras().values() for name in extra.products]

    @property
    def extra_compared(self) -> list[str]:
        """Paths of files that extras add to a comparison of runs."""
        names = [name for extra in extras().values() for name in extra.compared]
        return [self.path("compare", name) for name in names]

    @property
    def job_device(self) -> JobDevice:
        """Device and seed of jobs that measure something other than the sweeps."""
        return JobDevice(
            backend=self.choice.backend,
            device=self.config.settings.device,
            opencl_runtime=self.choice.runtime,
            seed=self.config.settings.seed,
        )

    @property
    def device_models(self) -> list[str]:
        """Path of the fitted model of the device, as a list.

        It is empty if the backend does not report the occupancy of kernels, which the model needs.
        """
        told = self.backend is not None and self.backend.tells_occupancy
        return [self.path("model", "device.json")] if self.config.dataset or told else []

    @property
    def device_cells(self) -> list[str]:
        """Path of the model's prediction for each cell, as a list, empty without a model."""
        return [str(Path(file).with_suffix(".parquet")) for file in self.device_models]

    # Figures

    @cached_property
    def figures(self) -> list[FigureSpec]:
        """Figures of measured cells, in the order in which the report shows them."""
        figures = [
            figure
            for sweep in self.config.sweeps.values()
            for figure in figures_of(sweep, self.choice.backend)
        ]
        # Sweeps of one kernel share the figures over all sizes.
        return list({f.name: f for f in figures}.values())

    @property
    def section_figures(self) -> list[str]:
        """Names of the figures in those sections of the report that extras add."""
        return [section.figure for section in self._sections.values()]

    @property
    def _sections(self) -> dict[str, Section]:
        """Sections of the report that extras add to this run, by name of the extra."""
        return {n: section for n, section in extra_sections().items() if section.files(self)}

    def section_inputs(self, wildcards: Any) -> dict[str, list[str]]:
        """Return the input files of the report's sections by extras, by name of the input."""
        return {f"of_{name}": [*s.files(self)] for name, s in self._sections.items()}

    @property
    def figure_files(self) -> list[str]:
        """Paths of the SVG files of all figures in the report: of cells, extras and chapters."""
        chapters = [name for c in self.config.chapters.values() for name in c.plan.figures]
        names = [*(f.name for f in self.figures), *self.section_figures, *chapters]
        return [self.path("figures", f"{n}.svg") for n in names]

    def figure(self, wildcards: Any) -> FigureSpec:
        """Return the figure of measured cells that Snakemake's `wildcards` name."""
        return next(f for f in self.figures if f.name == wildcards.figure)

    def figure_inputs(self, wildcards: Any) -> dict[str, str]:
        """Return the files that a figure is drawn from, by name of the rule's input."""
        needs = self.figure(wildcards).view.needs
        files = {"dataset": self.dataset, "peak": self.path("summary", "peak.json")}
        if "device" in needs and self.device_cells:
            files["device"] = self.device_cells[0]
        return files

    def figure_job(self, wildcards: Any) -> FigureJob:
        """Return the job that draws the figure that Snakemake's `wildcards` name."""
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
        """Return the parameters of the rule that writes the report's content, as plain values.

        The figures are in ``sections``: a list of SVG files for each heading.
        """
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
        """Return a digest of the Typst templates of the report and of its chapters."""
        return template_digest(c.folder.path for c in self.config.chapters.values())


def data_files(folders: Iterable[str]) -> list[str]:
    """Return the Parquet files of the data sets in `folders`.

    A folder is that of a finished run, or a recorded data set. Raw shards of a run do not count.
    """
    files: list[Path] = []
    for folder in map(Path, folders):
        if (folder / "dataset").is_dir():
            files += sorted((folder / "dataset").rglob("*.parquet"))
        elif not (folder / PLAN_FILE).is_file():
            files += sorted(unpacked(folder).rglob("*.parquet"))
    return [str(file) for file in dict.fromkeys(files)]
