"""What the rule files ask: the run's files, each job's parameters, digests. No job runs here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .config import RunConfig, check_memory, load_config
from .devices.base import DeviceInfo
from .devices.select import DeviceChoice, resolve
from .digest import code_digest, file_digest, library_digest
from .dot_products import DotProduct
from .figure_plan import FigureSpec, figures_of, refuse_many_figures
from .job_params import ROOT, cache_folder
from .kernels import KernelFolder
from .plan import Shard, named_shard, plan_shards, run_plan
from .run_plan import PLAN_FILE, RunPlan
from .simulations import Tables
from .studies import ERRORS, TIMELINE, cell_params
from .workload import Curve, Footprint, HostFedWorkload, WorkingSet, Workload

# The third document's plots, by the kernel that can stand beside them.
DOT_PLOTS = {
    "dot_streamed": ("running_time", "throughput"),
    "dot_square": ("running_time_square", "throughput_square"),
}


class Flow:
    """A run as Snakemake sees it. Paths are relative to the working directory.

    `shards` are those that it measures.
    """

    def __init__(self, raw: Mapping[str, Any], ask_device: bool) -> None:
        """Check the configuration; with `ask_device` resolve ``backend: auto`` on this host.

        Raises ConfigError or NoDeviceError, each one sentence.
        """
        self.config: RunConfig = load_config(raw, ROOT)
        refuse_many_figures(self.config.sweeps)
        self.shards: list[Shard] = [] if self.config.dataset else plan_shards(self.config)
        self.results = Path("results") / self.config.run
        self._info: DeviceInfo | None = None
        self.choice = DeviceChoice(
            self.config.backend,
            0 if self.config.device == "all" else int(self.config.device),
            self.config.opencl_runtime,
            cache_folder(self.results),
        )
        if self.config.device_memory is not None:
            check_memory(self.config, self.config.device_memory, self.config.device_memory)
        elif ask_device and self.config.backend == "auto" and self.config.dataset is None:
            self.choice, self._info = resolve("auto", self.choice)
            check_memory(self.config, self._info.global_memory, self._info.max_allocation)

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
            return sorted(os.path.relpath(p) for p in self.config.dataset.rglob("*.parquet"))
        return [self.path("cells", s.path) for s in self.shards]

    def shard_file(self, wildcards: Any) -> str:
        """The file that the measuring job of these wildcards makes."""
        return self.path("cells", named_shard(wildcards).path)

    def first_repeat(self, wildcards: Any) -> str:
        """The file of the first repeat, which a later one needs: both measure the same cells."""
        return self.path("cells", replace(named_shard(wildcards), repeat=1).path)

    @cached_property
    def plan(self) -> RunPlan:
        """What the measuring jobs are told."""
        return run_plan(self.config, self.choice.backend, self.choice.opencl_runtime)

    @property
    def plan_file(self) -> str:
        """Where the plan lies from the moment at which the first job starts."""
        return self.path(PLAN_FILE)

    def measure_params(self, wildcards: Any) -> dict[str, Any]:
        """Parameters of one measuring job."""
        shard = named_shard(wildcards)
        return self.plan.sweeps[shard.sweep][shard.dtype].shard_params(shard.index, shard.repeat)

    @property
    def shard_plan(self) -> dict[str, Any] | None:
        """The plan for `aggregate`; None of a recorded data set, whose own each shard tells."""
        return None if self.config.dataset is not None else self.plan.as_plain()

    def library_code(self, wildcards: Any) -> str:
        """Digest of the library behind the swept kernel's own workload."""
        return library_digest(self.config.sweeps[wildcards.sweep].folder.path / "workload.py")

    @property
    def measures_on_cuda(self) -> bool:
        """Whether the run measures, and on CUDA devices."""
        return self.choice.backend == "cuda" and self.config.dataset is None

    @property
    def machine_code_files(self) -> list[str]:
        """Checked machine code of every sweep and dtype."""
        return [
            self.path("machine_code", name, f"{dtype}.json")
            for name, sweep in self.config.sweeps.items()
            if sweep.folder.workload.device_code
            for dtype in sweep.dtypes
        ]

    def machine_code_params(self, wildcards: Any) -> dict[str, Any]:
        """What is compiled and for which architecture."""
        sweep = self.config.sweeps[wildcards.sweep]
        return {
            "arch": self.config.cuda_arch,
            "dtype": wildcards.dtype,
            "folder": os.path.relpath(sweep.folder.path, ROOT),
            "kernel_digest": sweep.folder.digest(),
            "variants": list(sweep.variants),
        }

    def measure_threads(self, wildcards: Any) -> int:
        """What is measured of the host has all its cores, so that no other job runs beside it."""
        workload = self.config.sweeps[wildcards.sweep].folder.workload
        on_device = self.choice.backend == "cuda" and not isinstance(workload, HostFedWorkload)
        return 1 if on_device else self.all_cores

    @property
    def all_cores(self) -> int:
        """Of this host."""
        return os.cpu_count() or 1

    def shard_place(self, wildcards: Any, output: Any) -> tuple[int, int]:
        """Number (from 1) of the shard that a measuring job makes, and how many there are.

        The argument `output` keeps Snakemake from comparing this with the last run's value.
        """
        return self._shard_numbers[named_shard(wildcards).path], len(self.shards)

    @cached_property
    def _shard_numbers(self) -> dict[str, int]:
        # By name, not by output: where results go to a storage that is a local copy's path.
        return {shard.path: number for number, shard in enumerate(self.shards, start=1)}

    @property
    def cache(self) -> str:
        """Where device runtimes keep what they compile."""
        return str(cache_folder(self.results))

    # Analysis and figures

    @cached_property
    def workloads(self) -> dict[str, Workload]:
        """The workload of every kernel that is swept, by its name."""
        folders = [s.folder for s in self.config.sweeps.values()]
        return {f.name: f.workload for f in sorted(folders, key=lambda f: f.name)}

    @property
    def swept(self) -> dict[str, dict[str, Any]]:
        """What the cells of each sweep are made of, apart from its axes."""
        return {
            name: {
                "kernel": s.folder.name,
                "sizes": [[p.height, p.width] for p in s.problems],
                "dtypes": list(s.dtypes),
                "variants": list(s.variants),
                "cache_states": list(s.cache_states),
            }
            for name, s in self.config.sweeps.items()
        }

    @property
    def persistent_kernels(self) -> list[str]:
        """Kernels that the closed model is fitted to."""
        return [n for n, w in self.workloads.items() if w.persistent_axis]

    @property
    def mapped_kernels(self) -> dict[str, str]:
        """Folders of the kernels that the model of a block's shape is fitted to, by name."""
        folders = [s.folder for s in self.config.sweeps.values()]
        return {f.name: os.path.relpath(f.path, ROOT) for f in folders if f.workload.mappings}

    @property
    def mapped_digests(self) -> dict[str, str]:
        """Digests of these folders, whose ``texels`` the model asks."""
        folders = [s.folder for s in self.config.sweeps.values()]
        return {f.name: f.digest() for f in folders if f.workload.mappings}

    @property
    def ceiling_kernels(self) -> dict[str, str]:
        """What the device can ``load`` or ``store`` at most is shown by these kernels."""
        return {n: w.ceiling for n, w in self.workloads.items() if w.ceiling is not None}

    @property
    def host_fed_kernels(self) -> list[str]:
        """Kernels whose data come from the host."""
        return [n for n, w in self.workloads.items() if isinstance(w, HostFedWorkload)]

    @property
    def largest_values(self) -> dict[str, dict[str, int]]:
        """The largest value that a kernel takes of an axis, by kernel and axis."""
        return {n: dict(sorted(w.most.items())) for n, w in self.workloads.items() if w.most}

    @property
    def dot_plots(self) -> list[str]:
        """The third document's plots that this run can stand beside."""
        if not self.has_dots:
            return []
        return [p for kernel, plots in DOT_PLOTS.items() if kernel in self.workloads for p in plots]

    @property
    def has_dots(self) -> bool:
        """Whether the report has a page on dot products: where one is streamed."""
        return "dot_streamed" in self.workloads

    # Studies

    @property
    def studies(self) -> list[str]:
        """The studies of this run: of a recorded data set those that were recorded with it."""
        studies = self.config.studies
        wanted = {TIMELINE: bool(studies.timelines), ERRORS: studies.errors is not None}
        return [
            name
            for name, is_wanted in wanted.items()
            if is_wanted
            and self.has_dots
            and (self.config.dataset is None or self._recorded(name) is not None)
        ]

    def _recorded(self, study: str) -> str | None:
        if self.config.studies.recorded is None:
            return None
        path = self.config.studies.recorded / f"{study}.parquet"
        return os.path.relpath(path) if path.is_file() else None

    def study_file(self, study: str) -> str:
        """What was measured for a study, here or where it was recorded."""
        return self._recorded(study) or self.path("studies", f"{study}.parquet")

    @property
    def dot_folders(self) -> dict[str, KernelFolder]:
        """The swept kernels of dot products, by name."""
        return {
            s.folder.name: s.folder
            for s in self.config.sweeps.values()
            if isinstance(s.folder.workload, DotProduct)
        }

    def study_params(self, study: str) -> dict[str, Any]:
        """Parameters of a study's job."""
        studies, params = self.config.studies, self._study_device()
        folders = self.dot_folders
        if study == TIMELINE:
            used = {cell.kernel for cell in studies.timelines.values()}
            folders = {
                s.folder.name: s.folder
                for s in self.config.sweeps.values()
                if s.folder.name in used
            }
            params["cells"] = {n: cell_params(c) for n, c in sorted(studies.timelines.items())}
        elif studies.errors is not None:
            e = studies.errors
            params["study"] = {
                "sizes": list(e.sizes),
                "conditions": list(e.conditions),
                "length": e.length,
            }
        params["folders"] = {n: os.path.relpath(f.path, ROOT) for n, f in sorted(folders.items())}
        params["library"] = {
            n: library_digest(f.path / "workload.py") for n, f in sorted(folders.items())
        }
        params["kernel_digests"] = {n: f.digest() for n, f in sorted(folders.items())}
        return dict(sorted(params.items()))

    def _study_device(self) -> dict[str, Any]:
        return {
            "backend": self.choice.backend,
            "device": self.config.device,
            "opencl_runtime": self.choice.opencl_runtime,
            "seed": self.config.seed,
        }

    @cached_property
    def figures(self) -> list[FigureSpec]:
        """Figures of measured cells, in the order of the report."""
        found = [
            figure
            for sweep in self.config.sweeps.values()
            for view in sweep.folder.workload.views
            for figure in figures_of(sweep, view)
            if not isinstance(view, Footprint) or self.choice.backend == "cuda"
        ]
        # Sweeps of one kernel share the figures over all sizes.
        return list({f.name: f for f in found}.values())

    @property
    def figure_files(self) -> list[str]:
        """All figures of the report."""
        simulated = [
            f"{kind}-{s.name}"
            for s in self.config.simulations
            for kind, asked in (
                ("simulated", s.sizes),
                ("questions", s.questions),
                ("float3", s.questions),
                ("same_machine", s.measured),
            )
            if asked
        ]
        dots = [f"dot-{plot}" for plot in self.dot_plots]
        studies = [f"{study}-dot" for study in self.studies]
        names = [f.name for f in self.figures] + dots + studies + simulated
        return [self.path("figures", f"{n}.svg") for n in names]

    @property
    def figure_notes(self) -> list[str]:
        """Title and caption of each figure, beside it."""
        return [str(Path(f).with_suffix(".json")) for f in self.figure_files]

    def figure_params(self, wildcards: Any) -> dict[str, Any]:
        """What the figure named by the wildcards shows."""
        spec = next(f for f in self.figures if f.name == f"{wildcards.kind}-{wildcards.rest}")
        sweeps = self.config.sweeps.values()
        params: dict[str, Any] = {"where": spec.where}
        if isinstance(spec.view, WorkingSet):
            return params
        # Where all of the run is in one state, a title need not say in which.
        params["name_state"] = len({state for s in sweeps for state in s.cache_states}) > 1
        if isinstance(spec.view, Footprint):
            return params
        if isinstance(spec.view, Curve):
            return params | {"x": spec.view.x, "unit": spec.view.unit}
        controls = list(self.workloads[spec.where["kernel"]].controls)
        return params | {
            "x": spec.view.x,
            "y": spec.view.y,
            "dtypes": list(spec.dtypes),
            "controls": controls,
        }

    def simulation_params(self, wildcards: Any) -> dict[str, Any]:
        """What is asked of a simulated device, and its file's digest."""
        s = next(s for s in self.config.simulations if s.name == wildcards.machine)
        tables = s.tables or Tables((), ())
        return {
            "file": os.path.relpath(s.device_file, ROOT),
            "file_digest": file_digest(s.device_file),
            "levels": list(s.levels),
            "sizes": list(s.sizes),
            "num_partition": s.num_partition,
            "tables": {"sizes": list(tables.sizes), "num_partition": list(tables.num_partition)},
            "questions": s.questions,
        }

    def simulated_files(self, kind: str) -> list[str]:
        """Files of the simulated devices that `kind` is asked of."""
        asked = {
            "checks.json": lambda s: s.document,
            "tables.parquet": lambda s: s.tables,
            "questions.parquet": lambda s: s.questions,
            "measured.parquet": lambda s: s.measured,
        }
        names = [s.name for s in self.config.simulations if asked[kind](s)]
        return [self.path("simulated", f"{name}-{kind}") for name in names]

    @property
    def atlas_files(self) -> list[str]:
        """The document's figures drawn from simulated devices, a PDF each."""
        return [self.path(f"figures-{s.name}.pdf") for s in self.config.simulations if s.document]

    def report_params(self, wildcards: Any) -> dict[str, Any]:
        """What the report tells about the run besides its files."""
        return {
            "run": self.config.run,
            "figures": self.figure_files,
            "kernels": {
                n: {"title": w.title, "pattern": w.pattern, "controls": list(w.controls)}
                for n, w in self.workloads.items()
            },
            "persistent": self.persistent_kernels,
            "host_fed": self.host_fed_kernels,
            "recorded": self.config.dataset is not None,
            "seed": self.config.seed,
        }

    @staticmethod
    def code(entry: str) -> str:
        """Digest of the code behind a stage, as a parameter of its rule."""
        return code_digest(entry)

    @staticmethod
    def listing_digest() -> str:
        """Digest of the kernel's source that the atlas quotes."""
        return file_digest(ROOT / "kernels/block_eq_partition/kernel.cu")

    @staticmethod
    def template_digest() -> str:
        """Digest of the report's template and the published numbers."""
        published = (p for p in (ROOT / "reports/published").rglob("*") if p.is_file())
        return file_digest(*(ROOT / "reports").glob("*.typ"), *published)
