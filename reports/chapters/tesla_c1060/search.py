"""A joint search: every combination of hypotheses about the machine, and what each of them shows.

All are simulated whole. None is left out for failing at one fact, so that it is known which of the
document's facts no machine shows together. What counts as shown is said in `answers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from gpushmoo.core.schema import Float64, Int64, Meaning, String, Table
from gpushmoo.storage.store import write_parquet

from .memory import banks_of
from .simulation.machine import Level, Machine, clocks
from .simulation.run import BLOCK_EQ, COALESCED, SIMULATED_DTYPES, Case, FastRun, run_case

# Half-warps that are issued together and wait for each other. The document takes half-warps and
# says that "basic unit of scheduling is a warp".
ISSUES = {"half-warp": 1, "warp": 2}
# Multiprocessors that share a port to the memory, and bytes that the port passes per core cycle.
# The document does not have such ports. The board has ten clusters of three. 8 bytes are the least:
# ten such ports carry 104 GB/s at 1.3 GHz, and the board's memory 102.4.
PORTS: Mapping[str, tuple[int, int | None]] = {
    "none": (1, None),
    "2 SMs at 8 B": (2, 8),
    "3 SMs at 8 B": (3, 8),
    "3 SMs at 16 B": (3, 16),
}
# How much of the bus's rate the memory gives, where nothing but the bus is simulated.
EFFICIENCIES = (1.0, 0.9, 0.8, 0.7)
# Level of detail, share of the bus's rate, hashed partitions, requests the banks may choose from.
MEMORIES: Mapping[str, tuple[Level, float, bool, int]] = {
    **{f"one bus at {100 * e:.0f} %": (Level.BUS, e, False, 1) for e in EFFICIENCIES},
    "partitions": (Level.PARTITIONS, 1.0, False, 1),
    "hashed partitions": (Level.PARTITIONS, 1.0, True, 1),
    "banks in order": (Level.BANKS, 1.0, False, 1),
    "banks choosing of 32": (Level.BANKS, 1.0, False, 32),
}
# Blocks of block_eq_partition that a multiprocessor holds. The document says that there is room
# for two; more than 16 registers a thread would leave room for one. The coalesced copy, another
# kernel, is not concerned.
HELD = (2, 1)
THREADS = 512
BLOCKS = (1, 2, 4, 8, 16, 30, 32)
# As many multiprocessors as blocks: no second blocks.
EVEN = 32


class SearchedMachine(Table):
    """A combination of hypotheses, and what it gives on arrays of one size."""

    device: String
    width: Int64
    latency_cycles: Annotated[
        Int64, Meaning("from a command to its data", "cycles of the core clock")
    ]
    issue: Annotated[String, Meaning("what is issued and waits as a whole: half-warp or warp")]
    port: Annotated[
        String,
        Meaning("multiprocessors that share a port to the memory, and what it passes in a cycle"),
    ]
    memory: Annotated[String, Meaning("what is simulated of the memory")]
    memory_clock: Annotated[String, Meaning("clock of the memory")]
    held_blocks: Annotated[
        Int64, Meaning("blocks of block_eq_partition that a multiprocessor holds at once")
    ]
    one_block_gbs: Annotated[Float64, Meaning("one block of float", "GB/s")]
    twice_error: Annotated[
        Float64, Meaning("most that double over float is off 2, as a share, up to 8 blocks")
    ]
    doubling_error: Annotated[
        Float64, Meaning("most that a doubling of the blocks is off 2, as a share, up to 8")
    ]
    float_change: Annotated[
        Float64, Meaning("relative change of float's bandwidth from 16 to 32 blocks")
    ]
    double_change: Annotated[
        Float64, Meaning("relative change of double's bandwidth from 16 to 32 blocks")
    ]
    thirty_gain: Annotated[
        Float64, Meaning("least gain of 30 blocks over 16 and 32, both types, as a share")
    ]
    coalesced_gain: Annotated[
        Float64, Meaning("double over float in the coalesced copy, minus one")
    ]
    float3_one: Annotated[
        Float64, Meaning("float3 over float in the coalesced copy, by one access")
    ]
    float3_three: Annotated[Float64, Meaning("the same by the three commands of compiled code")]
    lonely_share: Annotated[
        Float64, Meaning("double on 32 blocks: time in which under half the units work", "0 to 1")
    ]
    bus_busy_share: Annotated[
        Float64, Meaning("double on 16 blocks: time in which the bus is busy", "0 to 1")
    ]
    even_change: Annotated[
        Float64, Meaning("double's change from 16 to 32 blocks on 32 multiprocessors")
    ]


SEARCH_SCHEMA = SearchedMachine.schema()


@dataclass(frozen=True)
class Hypotheses:
    """One value of each parameter; `memory_clock` is a key of `machine.clocks`."""

    latency_cycles: int
    issue: str
    port: str
    memory: str
    memory_clock: str
    held_blocks: int

    def machine(self, described: Machine) -> Machine:
        """The `described` machine under these hypotheses."""
        level, share, hashed, choose_from = MEMORIES[self.memory]
        machine = clocks(described)[self.memory_clock]
        half_warps, (sm_per_port, port_bytes) = ISSUES[self.issue], PORTS[self.port]
        banks = machine.banks
        if level is Level.BANKS:
            banks = replace(banks_of(machine), choose_from=choose_from)
        return replace(
            machine,
            latency_cycles=self.latency_cycles,
            half_warp=half_warps * machine.half_warp,
            index_cycles=half_warps * machine.index_cycles,
            step_cycles=half_warps * machine.step_cycles,
            command_cycles=half_warps * machine.command_cycles,
            sm_per_port=sm_per_port,
            port_bytes=port_bytes,
            memory_data_rate_mhz=share * machine.memory_data_rate_mhz,
            hashed_partitions=hashed,
            banks=banks,
        )


def combinations(described: Machine, latencies: Sequence[int]) -> Iterator[Hypotheses]:
    """Every combination of the hypotheses with these latencies in core cycles."""
    every = product(latencies, ISSUES, PORTS, MEMORIES, clocks(described), HELD)
    return (Hypotheses(*values) for values in every)


def write_search(described: Machine, asked: Mapping[str, Any], out: Path, threads: int) -> None:
    """Simulate all combinations on arrays of the `asked` sizes (SEARCH_SCHEMA), in `threads`."""
    work = [
        (side, h)
        for h in combinations(described, asked["latency_cycles"])
        for side in asked["sizes"]
    ]

    def row(job: tuple[int, Hypotheses]) -> dict[str, Any]:
        side, hypotheses = job
        found = shown(hypotheses.machine(described), hypotheses, side)
        rounded = {name: round(value, 4) for name, value in found.items()}
        return {"device": described.name, "width": side, **asdict(hypotheses), **rounded}

    # One of each level compiles, before all run at once.
    for level in Level:
        run_case(described, Case(BLOCK_EQ, "float", asked["sizes"][0], 1, level))
    with ThreadPoolExecutor(max(1, threads)) as pool:
        rows = list(pool.map(row, work))
    write_parquet(pa.Table.from_pylist(rows, schema=SEARCH_SCHEMA), out, {})


def shown(machine: Machine, hypotheses: Hypotheses, side: int) -> dict[str, float]:
    """What a machine gives on arrays of `side`² elements, by column of SEARCH_SCHEMA."""
    level = MEMORIES[hypotheses.memory][0]
    holding = replace(machine, max_threads_per_sm=THREADS * hypotheses.held_blocks)

    def copy(dtype: str, n: int, sms: Machine = holding) -> FastRun:
        return run_case(sms, Case(BLOCK_EQ, dtype, side, n, level))

    runs = {(dtype, n): copy(dtype, n) for dtype in SIMULATED_DTYPES for n in BLOCKS}
    gbs = {key: run.drained_bandwidth_gbs for key, run in runs.items()}
    whole = {
        (dtype, commands): run_case(
            machine, Case(COALESCED, dtype, side, 0, level, commands)
        ).drained_bandwidth_gbs
        for dtype, commands in (("float", 1), ("double", 1), ("float3", 1), ("float3", 3))
    }
    even = [
        copy("double", n, replace(holding, n_sm=EVEN)).drained_bandwidth_gbs for n in (16, EVEN)
    ]
    last = runs["double", 16]
    return {
        "one_block_gbs": gbs["float", 1],
        "twice_error": max(
            abs(gbs["double", n] / gbs["float", n] / 2 - 1) for n in BLOCKS if n <= 8
        ),
        "doubling_error": max(
            abs(gbs[dtype, n] / gbs[dtype, n // 2] / 2 - 1)
            for dtype in SIMULATED_DTYPES
            for n in (2, 4, 8)
        ),
        "float_change": gbs["float", 32] / gbs["float", 16] - 1,
        "double_change": gbs["double", 32] / gbs["double", 16] - 1,
        "thirty_gain": min(
            gbs[dtype, 30] / gbs[dtype, n] - 1 for dtype in SIMULATED_DTYPES for n in (16, 32)
        ),
        "coalesced_gain": whole["double", 1] / whole["float", 1] - 1,
        "float3_one": whole["float3", 1] / whole["float", 1],
        "float3_three": whole["float3", 3] / whole["float", 1],
        "lonely_share": runs["double", 32].lonely_share,
        "bus_busy_share": float(last.bus_busy_cycles / last.drained_cycles),
        "even_change": even[1] / even[0] - 1,
    }
