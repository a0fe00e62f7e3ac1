"""What the rules ask of the kernels that a run sweeps."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

from ..core.paths import ROOT
from ..workloads.contract import Workload
from ..workloads.host_fed import HostFedWorkload
from .config import RunConfig
from .digest import code_digest

# Beside recorded shards: the ways through their kernels' machine code, where they do not tell them.
CODE_FILE = "code_paths.json"


class SweptKernels:
    """The swept kernels of a checked configuration."""

    config: RunConfig

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
                "launch_kinds": list(s.launch_kinds),
            }
            for name, s in self.config.sweeps.items()
        }

    @property
    def recorded_code(self) -> list[str]:
        """What was recorded of the machine code beside recorded shards that do not tell it."""
        found = self.config.dataset and self.config.dataset / CODE_FILE
        return [os.path.relpath(found)] if found and found.is_file() else []

    @property
    def persistent_kernels(self) -> list[str]:
        """Kernels that the closed model is fitted to."""
        return [n for n, w in self.workloads.items() if w.persistent_axis]

    @property
    def kernel_places(self) -> dict[str, str]:
        """Folders of the swept kernels, by name."""
        folders = [s.folder for s in self.config.sweeps.values()]
        return {f.name: os.path.relpath(f.path, ROOT) for f in folders}

    @property
    def mapped_kernels(self) -> dict[str, str]:
        """Folders of the kernels that the model of a block's shape is fitted to, by name."""
        return {n: f for n, f in self.kernel_places.items() if self.workloads[n].mappings}

    @property
    def kernel_digests(self) -> dict[str, str]:
        """Digests of the kernels' code in Python, which the models ask what threads access."""
        return {n: code_digest(ROOT / f / "workload.py") for n, f in self.kernel_places.items()}

    @property
    def ceiling_kernels(self) -> dict[str, str]:
        """What the device can ``load`` or ``store`` at most is shown by these kernels."""
        return {n: w.ceiling for n, w in self.workloads.items() if w.ceiling is not None}

    @property
    def host_fed_kernels(self) -> list[str]:
        """Kernels whose data come from the host."""
        return [n for n, w in self.workloads.items() if isinstance(w, HostFedWorkload)]

    @property
    def control_variants(self) -> dict[str, list[str]]:
        """Variants that are not to win, by kernel."""
        return {n: list(w.controls) for n, w in self.workloads.items() if w.controls}

    @property
    def limits(self) -> dict[str, Any]:
        """The largest value that a kernel takes of an axis, and the most threads of a block."""
        most = {n: dict(sorted(w.most.items())) for n, w in self.workloads.items() if w.most}
        return {"most": most, "threads": self.config.measure.thread_limit or 1024}
