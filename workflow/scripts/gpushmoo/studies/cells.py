"""What studies share: verified cells on a locked device, and their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from .. import __version__
from ..core.backends import BACKENDS
from ..core.errors import DeviceLostError, TypedError
from ..core.space import Cell, ChosenCell, Problem
from ..devices.base import Device, PreparedLaunch, Program
from ..devices.select import open_for_job
from ..measuring.buffers import Space, open_space
from ..measuring.builds import Builds, build_versions
from ..measuring.locks import lock_one
from ..storage.store import write_parquet
from ..workloads.loader import KernelFolder

Folders = Mapping[str, KernelFolder]


@contextmanager
def locked_device(
    params: Mapping[str, Any], cache: Path, say: Callable[[str], None]
) -> Iterator[Device]:
    """The device that `params` names, open, and locked until the block is left.

    `params` holds ``backend``, ``device``, ``opencl_runtime`` and ``seed``. Raises DeviceError.
    """
    with ExitStack() as held:

        def lock(devices: Sequence[tuple[int, str]]) -> int:
            index, taken = lock_one(devices, lambda: say("waiting until the device is free"))
            held.enter_context(taken)
            return index

        device = open_for_job(params, cache, lock)
        yield device
        device.close()


def cell_fault(err: TypedError) -> str:
    """The sentence of an error that costs one cell. Raises DeviceLostError, which costs all."""
    if isinstance(err, DeviceLostError):
        raise err
    return str(err)


@dataclass(frozen=True)
class ReadyCell:
    """A cell that may run: `bound` in the `space` in which it is verified by `proof`."""

    chosen: ChosenCell
    program: Program
    space: Space
    bound: PreparedLaunch
    proof: PreparedLaunch

    def fault(self) -> str | None:
        """A sentence on what is wrong with the output of a run on poisoned memory, or None."""
        self.space.poison()
        self.proof.run()
        wrong = self.space.verdict(self.chosen.cell, self.proof).message
        return None if wrong is None else f"The result is wrong: {wrong}."


def ready_cells(
    device: Device, folders: Folders, chosen: Sequence[ChosenCell], seed: int
) -> Iterator[tuple[ChosenCell, ReadyCell | str]]:
    """Each cell, verified and ready, or with a sentence on why not; neighbours share data."""
    for _, members in groupby(chosen, lambda one: data_of(one, folders)):
        some = list(members)
        first = some[0].cell
        folder = folders[first.kernel]
        versions = dict.fromkeys(folder.workload.version(one.cell) for one in some)
        builds = build_versions(device, folder, first.dtype, list(versions))
        data = first.problem, first.dtype, first.variant
        try:
            space = open_space(device, folder.workload, *data, seed)
        except TypedError as err:
            why = cell_fault(err)
            yield from ((one, why) for one in some)
            continue
        for one in some:
            yield one, _ready(folder, builds, space, one)


def _ready(folder: KernelFolder, builds: Builds, space: Space, one: ChosenCell) -> ReadyCell | str:
    name = folder.workload.version(one.cell).name
    try:
        if name in builds.failures:
            raise builds.failures[name]
        program = builds.programs[name]
        bound = space.bind(program, one.cell)
        proof = space.bind_proof(program, one.cell) or bound
        ready = ReadyCell(one, program, space, bound, proof)
        return ready.fault() or ready
    except TypedError as err:
        return cell_fault(err)


def data_of(one: ChosenCell, folders: Folders) -> tuple[str, str, Problem, str]:
    """A key that cells with the same data share."""
    cell = one.cell
    result = folders[cell.kernel].workload.result_of(cell.variant)
    return cell.kernel, cell.dtype, cell.problem, result


def write_study(
    study: str,
    rows: Sequence[Mapping[str, Any]],
    schema: pa.Schema,
    out: Path,
    folders: Folders,
    backend: str,
    **facts: Any,
) -> None:
    """Write the table of a study; its metadata are `facts`, and how it was made."""
    suffix = BACKENDS[backend].source_suffix
    metadata = {
        "study": study,
        "gpushmoo": __version__,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel_digests": {name: folder.digest(suffix) for name, folder in folders.items()},
        **facts,
    }
    write_parquet(pa.Table.from_pylist(list(rows), schema), out, metadata)


def cell_columns(cell: Cell, folders: Folders) -> dict[str, Any]:
    """The columns that identify a cell, its launch parameters, and the bytes that it moves."""
    read, written = folders[cell.kernel].workload.bytes_moved(cell)
    params = " ".join(f"{name}={value}" for name, value in cell.params)
    return cell.columns() | {"params": params, "bytes_read": read, "bytes_written": written}


def device_facts(device: Device) -> dict[str, Any]:
    """The device as a study's file describes it."""
    return {**asdict(device.info), "extra": dict(device.info.extra)}
