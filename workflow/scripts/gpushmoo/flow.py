"""What the rule files ask: the run's files, each job's parameters, digests. No job runs here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .config import KernelConfig, RunConfig, check_memory, load_config
from .devices.base import DeviceInfo
from .devices.select import DeviceChoice, resolve
from .digest import code_digest, file_digest
from .plan import ROOT, Shard, cache_folder, plan_shards, shard_params
from .space import Problem
from .workload import Curve, HeatMap


@dataclass(frozen=True)
class FigureSpec:
    """A figure of measured cells: its name and what it shows."""

    name: str
    kernel: str
    problem: Problem
    view: HeatMap | Curve


class Flow:
    """A run as Snakemake sees it. Paths are relative to the working directory."""

    def __init__(self, raw: Mapping[str, Any], ask_device: bool) -> None:
        """Check the configuration; with `ask_device` resolve ``backend: auto`` on this host.

        Raises ConfigError or NoDeviceError, each one sentence.
        """
        self.config: RunConfig = load_config(raw, ROOT)
        self.results = Path("results") / self.config.run
        self._info: DeviceInfo | None = None
        self._choice = DeviceChoice(
            self.config.backend,
            self.config.device,
            self.config.opencl_runtime,
            cache_folder(self.results),
        )
        if self.config.device_memory is not None:
            check_memory(self.config, self.config.device_memory, self.config.device_memory)
        elif ask_device and self.config.backend == "auto" and self.config.dataset is None:
            self._choice, self._info = resolve("auto", self._choice)
            check_memory(self.config, self._info.global_memory, self._info.max_allocation)

    def path(self, *parts: str) -> str:
        """A path inside the run's folder."""
        return str(self.results.joinpath(*parts))

    # Measuring

    @cached_property
    def shards(self) -> list[Shard]:
        """All shards of the run."""
        return plan_shards(self.config)

    @cached_property
    def shard_files(self) -> list[str]:
        """The raw shards: measured ones, or those of a recorded data set."""
        if self.config.dataset is not None:
            return sorted(os.path.relpath(p) for p in self.config.dataset.rglob("*.parquet"))
        return [self.path("cells", s.path) for s in self.shards]

    def shard_file(self, wildcards: Any) -> str:
        """The file that the measuring job of these wildcards makes."""
        return self.path("cells", wildcards.kernel, wildcards.dtype, f"{wildcards.shard}.parquet")

    def measure_params(self, wildcards: Any) -> dict[str, Any]:
        """Parameters of one measuring job."""
        index, count = (int(n) for n in wildcards.shard.split("-of-"))
        shard = Shard(wildcards.kernel, wildcards.dtype, index, count)
        backend, runtime = self._choice.backend, self._choice.opencl_runtime
        return shard_params(self.config, backend, runtime, shard)

    @property
    def measure_threads(self) -> int:
        """A CPU is measured with all cores, so that no other job runs beside it."""
        return 1 if self._choice.backend == "cuda" else (os.cpu_count() or 1)

    def shard_place(self, wildcards: Any, output: Any) -> tuple[int, int]:
        """Number (from 1) of the shard that a measuring job makes, and how many there are.

        The argument `output` keeps Snakemake from comparing this with the last run's value.
        """
        files = self.shard_files
        return files.index(str(output[0])) + 1, len(files)

    @property
    def cache(self) -> str:
        """Where device runtimes keep what they compile."""
        return str(cache_folder(self.results))

    # Analysis and figures

    @property
    def persistent_kernels(self) -> list[str]:
        """Kernels that the closed model is fitted to."""
        return [n for n, k in self.config.kernels.items() if k.folder.workload.persistent_axis]

    @property
    def figures(self) -> list[FigureSpec]:
        """Figures of measured cells, in the order of the report."""
        found = []
        for name, kernel in self.config.kernels.items():
            found += [
                FigureSpec(_figure_name(name, view, problem), name, problem, view)
                for view in kernel.folder.workload.views
                for problem in kernel.problems
            ]
        return found

    @property
    def figure_files(self) -> list[str]:
        """All figures of the report."""
        simulated = [
            f"{kind}-{s.name}" for s in self.config.simulations for kind in ("simulated", "gantt")
        ]
        return [
            self.path("figures", f"{n}.svg") for n in [f.name for f in self.figures] + simulated
        ]

    def figure_params(self, wildcards: Any) -> dict[str, Any]:
        """What the figure named by the wildcards shows."""
        spec = next(f for f in self.figures if f.name == f"{wildcards.kind}-{wildcards.rest}")
        kernel: KernelConfig = self.config.kernels[spec.kernel]
        params = {
            "kernel": spec.kernel,
            "height": spec.problem.height,
            "width": spec.problem.width,
            "dtypes": list(kernel.dtypes),
            "x": spec.view.x,
        }
        view = spec.view
        return params | ({"y": view.y} if isinstance(view, HeatMap) else {"unit": view.unit})

    def simulation_params(self, wildcards: Any) -> dict[str, Any]:
        """Sizes and numbers of blocks of a simulated device, and its file's digest."""
        s = next(s for s in self.config.simulations if s.name == wildcards.machine)
        return {
            "file": os.path.relpath(s.device_file, ROOT),
            "file_digest": file_digest(s.device_file),
            "sizes": list(s.sizes),
            "num_partition": s.num_partition,
        }

    def report_params(self, wildcards: Any) -> dict[str, Any]:
        """What the report tells about the run besides its files."""
        return {
            "run": self.config.run,
            "figures": self.figure_files,
            "machines": [s.name for s in self.config.simulations],
            "kernels": {
                n: {"title": k.folder.workload.title, "pattern": k.folder.workload.pattern}
                for n, k in self.config.kernels.items()
            },
            "recorded": self.config.dataset is not None,
            "seed": self.config.seed,
        }

    @staticmethod
    def code(entry: str) -> str:
        """Digest of the code behind a stage, as a parameter of its rule."""
        return code_digest(entry)

    @staticmethod
    def template_digest() -> str:
        """Digest of the report's template and the published numbers."""
        return file_digest(
            *(ROOT / "reports").glob("*.typ"), *(ROOT / "reports/published").glob("*")
        )


def _figure_name(kernel: str, view: HeatMap | Curve, problem: Problem) -> str:
    axes = f"{view.x}-{view.y}" if isinstance(view, HeatMap) else view.x
    kind = "heatmap" if isinstance(view, HeatMap) else "curve"
    return f"{kind}-{kernel}-{axes}-{problem.label}"
