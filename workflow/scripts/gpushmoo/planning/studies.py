"""Studies that a run is asked for, and what their jobs are told."""

from __future__ import annotations

import os
from typing import Any

from ..core.backends import source_suffix
from ..studies.counters import sampled_kernels
from ..studies.sample import designed_sample
from .config import SWEPT_STUDIES
from .flow import Flow

# How busy the units of the device were.
COUNTED = "counters.json"


def study_files(flow: Flow) -> list[str]:
    """The files of the studies that the configuration names."""
    own = [name for name in flow.config.studies if name not in SWEPT_STUDIES]
    return [flow.path("studies", f"{name}.parquet") for name in own]


def counted_files(flow: Flow) -> list[str]:
    """What was counted of launches: by the run itself, or beside recorded shards."""
    if "counters" in flow.config.studies:
        return [flow.path("studies", COUNTED)]
    found = flow.config.dataset and flow.config.dataset / COUNTED
    return [os.path.relpath(found)] if found and found.is_file() else []


def counters_params(flow: Flow) -> dict[str, Any]:
    """What the job of the hardware counters depends on besides its code."""
    suffix = source_suffix(flow.choice.backend)
    folders = sampled_kernels(designed_sample()).items()
    kernels = {name: folder.digest(suffix) for name, folder in folders}
    return {"device": flow.job_device, "kernels": kernels}


def energy_params(flow: Flow) -> dict[str, Any]:
    """What the job of the energy depends on besides its code and its cells."""
    suffix = source_suffix(flow.choice.backend)
    folders = {s.folder.name: s.folder for s in flow.config.sweeps.values()}
    kernels = {name: folder.digest(suffix) for name, folder in sorted(folders.items())}
    return {"device": flow.job_device, "kernels": kernels, "folders": flow.kernel_places}
