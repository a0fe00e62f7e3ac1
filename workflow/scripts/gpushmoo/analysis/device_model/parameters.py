"""The parameters of the model of a device: what each means, its unit, and where a fit begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ParameterMeaning:
    """A parameter: its unit, what it is, and its value before anything is known.

    Cycles are those of a multiprocessor at its stated clock. The first values are about those of
    an NVIDIA H200. `fact` names the figure of `analysis.machine` that measures it by itself.
    """

    unit: str
    words: str
    first: float
    fact: str | None = None


PARAMETERS: Mapping[str, ParameterMeaning] = {
    "start": ParameterMeaning(
        "cycles", "from one launch to the next, in a row of them", 1800, "launch_s"
    ),
    "sample": ParameterMeaning("cycles", "what a timed interval costs besides", 8500, "sample_s"),
    "issue": ParameterMeaning("cycles", "an instruction of a warp", 0.28, "issue_s"),
    "dispatch": ParameterMeaning("cycles", "between two blocks that start", 157, "dispatch_s"),
    "warp_launch": ParameterMeaning("cycles", "a warp that starts", 12.8, "warp_launch_s"),
    "block": ParameterMeaning("cycles", "a block's start and end", 100),
    "l2_latency": ParameterMeaning("cycles", "a load from L2", 340, "latency_l2_s"),
    "dram_latency": ParameterMeaning(
        "cycles", "what a load from DRAM takes beyond one from L2", 400
    ),
    "turn": ParameterMeaning(
        "cycles", "an instruction of a loop, to a warp that waits for it", 1.8
    ),
    "store_line": ParameterMeaning(
        "cycles", "a line that a warp stores to", 4.6, "store_port_bytes_per_s"
    ),
    "store_again": ParameterMeaning(
        "cycles", "a line that the warp stored to by the access before", 1.5
    ),
    "load_line": ParameterMeaning(
        "cycles", "a line that a warp loads from", 0.9, "load_port_bytes_per_s"
    ),
    "own_service": ParameterMeaning(
        "1", "share of a block's own service that its warps wait for", 0.31
    ),
    "l2_rate": ParameterMeaning("bytes/cycle", "L2, reads and writes", 3650, "l2_copy_bps"),
    "l2_write_rate": ParameterMeaning("bytes/cycle", "L2, writes", 2310, "l2_write_bps"),
    "dram_rate": ParameterMeaning("bytes/cycle", "DRAM", 2330, "bus_read_bps"),
    "turn_round": ParameterMeaning(
        "1", "turning DRAM from reads to writes, a share of both", 0.07, "turn_1"
    ),
    "turn_more": ParameterMeaning(
        "1", "turning DRAM, more for each doubling of the loads that a warp has out", 0.026
    ),
    "turn_later": ParameterMeaning(
        "1", "turning DRAM, more for warps that load again after they stored", 0.11
    ),
    "part_sector": ParameterMeaning("1", "bytes of L2 for a byte in a sector used in part", 3.6),
    "part_texel_store": ParameterMeaning(
        "1", "bytes of L2 for a byte in an image's sector stored in part", 2.9
    ),
    "part_texel_load": ParameterMeaning(
        "1", "bytes of L2 for a byte in an image's sector loaded in part", 1.7
    ),
    "narrow": ParameterMeaning(
        "1", "power of an access's width by which bytes in sectors used in part grow", 0.4
    ),
    "l2_end": ParameterMeaning(
        "1", "where L2 ends, as a share of its size", 0.7, "cache_end_rate_share"
    ),
    "l2_written": ParameterMeaning("1", "room of a written byte in L2, in read ones", 1.0),
    "dirty": ParameterMeaning("1", "share of a flushed L2 that has to be written back", 0.68),
    "slowest": ParameterMeaning("1", "the slowest of e times as many warps, in latencies", 0.12),
    "queue": ParameterMeaning("1", "latency added by a saturated DRAM, in latencies", 0.95),
    "last_wave": ParameterMeaning("1", "how much of a whole wave a wave of one block takes", 0.75),
    "texel_store": ParameterMeaning("cycles", "a warp that stores to an image", 17.2),
}
FIRST: Mapping[str, float] = {name: meaning.first for name, meaning in PARAMETERS.items()}
