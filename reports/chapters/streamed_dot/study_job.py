"""The jobs of the studies: each opens and locks a device, runs, writes its file.

Unlike a sweep they run in this process: few kernels that the sweep has run before, no cell to lose.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.paths import ROOT
from gpushmoo.core.study_job import JobDevice
from gpushmoo.devices.base import Device
from gpushmoo.measuring.shard_file import provenance
from gpushmoo.storage.store import write_parquet
from gpushmoo.studies.cells import locked_device
from gpushmoo.workloads.host_fed import HostFedWorkload
from gpushmoo.workloads.loader import KernelFolder, load_kernel

from . import ERRORS, TIMELINE, cell_of
from .numerics import Study, modes_of, run_study
from .rivals import Rivals, run_rivals
from .timeline import timeline_table
from .tracing import trace

log = logging.getLogger(__name__)


def run_job(study: str, spec: Mapping[str, Any], cache: str, out: Path, terminal: TextIO) -> None:
    """Run the `study` of this name and write its table to `out`.

    `spec` are the parameters that `StreamedPlan.study_params` made. Raises DeviceError.
    """

    def say(text: str) -> None:
        terminal.write(f"{study}: {text}\n")
        terminal.flush()

    folders = {name: load_kernel(ROOT / path) for name, path in spec["folders"].items()}
    chosen = JobDevice(**{field.name: spec[field.name] for field in fields(JobDevice)})
    with locked_device(chosen, Path(cache), say) as device:
        if study == TIMELINE:
            table = _timelines(device, folders, spec)
        elif study == ERRORS:
            of = Study(**spec["study"], seed=spec["seed"])
            table = run_study(device, modes_of(folders), of)
        else:
            table = run_rivals(device, folders, Rivals(**spec["study"], seed=spec["seed"]))
    digests = ",".join(f"{name}={d}" for name, d in sorted(spec["kernel_digests"].items()))
    write_parquet(table, out, {**provenance(device.info, digests, {}), "params": dict(spec)})
    log.info("wrote %s", out)


def _timelines(
    device: Device, folders: Mapping[str, KernelFolder], spec: Mapping[str, Any]
) -> pa.Table:
    """Trace the cells of `spec` (timeline.TIMELINE_SCHEMA)."""
    traces = {}
    for label, specified in spec["cells"].items():
        cell = cell_of(specified)
        folder = folders[cell.kernel]
        workload = folder.workload
        assert isinstance(workload, HostFedWorkload)
        rng = np.random.default_rng([spec["seed"], 1, cell.problem.width])
        inputs = workload.inputs(cell.problem, cell.dtype, rng)
        defines = workload.defines(cell.dtype, cell.variant)
        program = device.build(folder.path, DTYPES[cell.dtype], defines)
        traces[label] = (cell, trace(device, workload, cell, program, inputs))
        log.info("traced %s", label)
    return timeline_table(traces, device.info)
