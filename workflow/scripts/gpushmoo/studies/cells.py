"""Share code between studies: verified cells on a locked device, tables, and the counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from .. import __version__
from ..core.backends import BACKENDS
from ..core.errors import DeviceLostError, TypedError
from ..core.space import CACHE_STATES, Cell, ChosenCell, Problem, chosen_cell
from ..core.study_job import JobDevice
from ..devices.base import Device, PreparedLaunch, Program
from ..devices.select import open_for_job
from ..measuring.cell_memory import Space, open_space
from ..measuring.locks import lock_one
from ..measuring.programs import Builds, programs_for
from ..storage.store import write_parquet
from ..storage.wholefile import read_json
from ..workloads.loader import KernelFolder

Folders = Mapping[str, KernelFolder]


@contextmanager
def locked_device(chosen: JobDevice, cache: Path, say: Callable[[str], None]) -> Iterator[Device]:
    """Open and lock the device of a study during the block; raise DeviceError if that fails."""
    with ExitStack() as held:

        def lock(devices: Sequence[tuple[int, str]]) -> int:
            index, taken = lock_one(devices, lambda: say("waiting until the device is free"))
            held.enter_context(taken)
            return index

        device = open_for_job(chosen, cache, lock)
        yield device
        device.close()


def cell_fault(err: TypedError) -> str:
    """Return the sentence of an error that affects one cell; raise DeviceLostError again."""
    if isinstance(err, DeviceLostError):
        raise err
    return str(err)


@dataclass(frozen=True)
class ReadyCell:
    """Cell that may run: `bound` in the `space` in which `proof` verifies it."""

    chosen: ChosenCell
    program: Program
    space: Space
    bound: PreparedLaunch
    proof: PreparedLaunch

    def fault(self) -> str | None:
        """Run on poisoned memory, and return a sentence on a wrong output, or None."""
        self.space.poison()
        self.proof.run()
        wrong = self.space.verdict(self.chosen.cell, self.proof).message
        return None if wrong is None else f"The result is wrong: {wrong}."


def ready_cells(
    device: Device, folders: Folders, chosen: Sequence[ChosenCell], seed: int
) -> Iterator[tuple[ChosenCell, ReadyCell | str]]:
    """Yield each cell, verified and ready, or with a sentence on the reason.

    Neighbors share their data.

    Parameters
    ----------
    device
        The open device.
    folders
        Kernel folders by name.
    chosen
        The cells.
    seed
        Seed of the inputs.
    """
    for _, members in groupby(chosen, lambda one: data_of(one, folders)):
        some = list(members)
        first = some[0].cell
        folder = folders[first.kernel]
        versions = dict.fromkeys(folder.workload.version(one.cell) for one in some)
        builds = programs_for(device, folder, first.dtype, list(versions))
        try:
            space = open_space(
                device, folder.workload, first.problem, first.dtype, first.variant, seed
            )
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
    """Return a key that cells with the same data share."""
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
    """Write the table of a study, with `facts` and the way it was made as metadata."""
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
    """Return the columns that identify a cell, its launch parameters, and its bytes."""
    read, written = folders[cell.kernel].workload.bytes_moved(cell)
    params = " ".join(f"{name}={value}" for name, value in cell.params)
    return cell.columns() | {"params": params, "bytes_read": read, "bytes_written": written}


WARM, FLUSHED = CACHE_STATES


def explained_cells(files: Iterable[Path]) -> list[ChosenCell]:
    """Return the launches whose limits a run's ``model/device.json`` explains."""
    whys = [why for file in files for d in read_json(file)["devices"] for why in d.get("whys", ())]
    return [
        chosen_cell({**why, **why["params"]}, list(why["params"]), "what binds the fastest launch")
        for why in sorted(whys, key=lambda why: (why["kernel"], why["dtype"], why["height"]))
    ]


# The counters, by the columns that hold them

# Names of Nsight Compute for compute capability 9.0; sums are over the whole device. A sector is of
# 32 bytes, a cache line of four. L1 is the cache of a multiprocessor, through which textures and
# surfaces go as well; L2 the device's. The units are in the columns' names: without one, what is
# counted is.
_MEMORY = {
    "duration_ns": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "l2_read_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
    "l2_write_sectors": "lts__t_sectors_srcunit_tex_op_write.sum",
    "l2_read_hit_sectors": "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
    "l2_write_hit_sectors": "lts__t_sectors_srcunit_tex_op_write_lookup_hit.sum",
    "l2_requests": "lts__t_requests_srcunit_tex.sum",
    "l2_sectors": "lts__t_sectors.sum",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "l2_to_l1_bytes": "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1_to_l2_bytes": "l1tex__m_l1tex2xbar_write_bytes.sum",
}
_LOCAL = {
    "l1_hit_percent": "l1tex__t_sector_hit_rate.pct",
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_load_hit_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "texture_requests": "l1tex__t_requests_pipe_tex_mem_texture.sum",
    "texture_sectors": "l1tex__t_sectors_pipe_tex_mem_texture.sum",
    "texture_hit_sectors": "l1tex__t_sectors_pipe_tex_mem_texture_lookup_hit.sum",
    "surface_store_requests": "l1tex__t_requests_pipe_tex_mem_surface_op_st.sum",
    "surface_store_sectors": "l1tex__t_sectors_pipe_tex_mem_surface_op_st.sum",
    "instructions": "smsp__inst_executed.sum",
    "sm_active_cycles": "sm__cycles_active.avg",
    "sm_elapsed_cycles": "sm__cycles_elapsed.max",
    "active_warps": "sm__warps_active.avg.per_cycle_active",
    "warps_launched": "sm__warps_launched.sum",
    "blocks_launched": "sm__ctas_launched.sum",
    **{
        f"{column}_percent": f"{unit}__throughput.avg.pct_of_peak_sustained_elapsed"
        for column, unit in (("sm", "sm"), ("l1", "l1tex"), ("l2", "lts"), ("dram", "dram"))
    },
}
# Warps that wait for this, in the mean of the cycles in which one issues.
_STALLS = (
    "long_scoreboard",
    "short_scoreboard",
    "lg_throttle",
    "tex_throttle",
    "mio_throttle",
    "drain",
    "membar",
    "wait",
    "no_instruction",
    "barrier",
    "dispatch_stall",
    "not_selected",
    "math_pipe_throttle",
    "imc_miss",
    "branch_resolving",
    "sleeping",
)
_WAITING = {
    f"stall_{reason}": f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    for reason in _STALLS
}

# Counters that are read together, each group in a separate run. The more there are in a group, the
# more often the profiler repeats every launch, and between two passes it restores the output
# through the caches.
GROUPS: Mapping[str, Mapping[str, str]] = {"memory": _MEMORY, "units": {**_LOCAL, **_WAITING}}
COLUMNS = tuple(column for group in GROUPS.values() for column in group)
