"""The jobs of the studies: each opens and locks a device, runs, writes its file.

Unlike a sweep they run in this process: few kernels that the sweep has run before, no cell to lose.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.paths import ROOT
from gpushmoo.devices.base import Device, DeviceInfo
from gpushmoo.measuring.shard_file import provenance
from gpushmoo.storage.store import write_parquet
from gpushmoo.studies.cells import locked_device
from gpushmoo.workloads.host_fed import HostFedWorkload
from gpushmoo.workloads.loader import KernelFolder, load_kernel

from .numerics import Study, modes_of, run_study
from .rivals import Rivals, run_rivals
from .studies import cell_of
from .timeline import timeline_table
from .tracing import trace

log = logging.getLogger(__name__)


def run_job(study: str, spec: Mapping[str, Any], cache: str, out: Path, terminal: TextIO) -> None:
    """Run the `study` of this name as `spec` says and write its table to `out`.

    Raises DeviceError.
    """
    studies = {"timeline": run_timelines, "errors": run_errors, "rivals": run_comparisons}
    studies[study](spec, Path(cache), out, terminal)


def run_timelines(params: Mapping[str, Any], cache: Path, out: Path, terminal: TextIO) -> None:
    """Trace the cells of `params` and write their spans to `out` (timeline.TIMELINE_SCHEMA).

    Raises DeviceError.
    """
    folders = _folders(params)
    with _device(params, cache, "timeline", terminal) as device:
        traces = {}
        for label, spec in params["cells"].items():
            cell = cell_of(spec)
            folder = folders[cell.kernel]
            workload = folder.workload
            assert isinstance(workload, HostFedWorkload)
            rng = np.random.default_rng([params["seed"], 1, cell.problem.width])
            inputs = workload.inputs(cell.problem, cell.dtype, rng)
            defines = workload.defines(cell.dtype, cell.variant)
            program = device.build(folder.path, DTYPES[cell.dtype], defines)
            traces[label] = (cell, trace(device, workload, cell, program, inputs))
            log.info("traced %s", label)
    _write(timeline_table(traces, device.info), out, device.info, params)


def run_errors(params: Mapping[str, Any], cache: Path, out: Path, terminal: TextIO) -> None:
    """Run the numerics study of `params` and write it to `out` (numerics.ERRORS_SCHEMA).

    Raises DeviceError.
    """
    spec = params["study"]
    study = Study(
        sizes=tuple(spec["sizes"]),
        conditions=tuple(spec["conditions"]),
        length=spec["length"],
        seed=params["seed"],
    )
    with _device(params, cache, "errors", terminal) as device:
        table = run_study(device, modes_of(_folders(params)), study)
    _write(table, out, device.info, params)


def run_comparisons(params: Mapping[str, Any], cache: Path, out: Path, terminal: TextIO) -> None:
    """Time the ways of `params` in rounds and write them to `out` (rivals.RIVALS_SCHEMA).

    Raises DeviceError.
    """
    spec: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in params["study"].items()
    }
    with _device(params, cache, "rivals", terminal) as device:
        table = run_rivals(device, _folders(params), Rivals(**spec))
    _write(table, out, device.info, params)


def _folders(params: Mapping[str, Any]) -> dict[str, KernelFolder]:
    return {name: load_kernel(ROOT / path) for name, path in params["folders"].items()}


def _device(
    params: Mapping[str, Any], cache: Path, label: str, terminal: TextIO
) -> AbstractContextManager[Device]:
    """The first free device that may measure, open and locked."""

    def say(text: str) -> None:
        terminal.write(f"{label}: {text}\n")
        terminal.flush()

    return locked_device(params, cache, say)


def _write(table: pa.Table, out: Path, info: DeviceInfo, params: Mapping[str, Any]) -> None:
    digests = params["kernel_digests"]
    joined = ",".join(f"{name}={digests[name]}" for name in sorted(digests))
    metadata = {**provenance(info, joined, {}), "params": dict(params)}
    write_parquet(table, out, metadata)
    log.info("wrote %s", out)
