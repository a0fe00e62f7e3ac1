"""What each column of the Parquet files means, and its unit.

`docs/data.md` is made of it. A name that two tables share means the same in both, unless
`APART` says what it means in one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Meaning:
    """A column in words; `unit` is empty for texts, keys and what is only counted."""

    text: str
    unit: str = ""


SECONDS, GBS, CYCLES, BYTES, SHARE = "s", "GB/s", "cycles of the core clock", "bytes", "0 to 1"

_WHICH = {
    "cell_key": Meaning("hash of all that makes the cell; the same in every sweep that has it"),
    "kernel": Meaning("name of the kernel's folder"),
    "dtype": Meaning("element type"),
    "variant": Meaning("variant of the kernel"),
    "height": Meaning("rows of the problem", "elements"),
    "width": Meaning("columns of the problem", "elements"),
    "cache_state": Meaning("what the last cache holds before a sample: warm or flushed"),
    "launch_kind": Meaning("how launches come: back_to_back, isolated, stream or graph"),
    "device_name": Meaning("name of the device's model"),
    "device_uuid": Meaning("the device that measured; after repeats that of the first"),
    "device": Meaning("name of the simulated device"),
    "backend": Meaning("by what the device was programmed: cuda, opencl or another"),
}
_ENDED = {
    "status": Meaning("how the cell ended; only what is ok was verified and has times"),
    "message": Meaning("why it did not end as ok; null where it did"),
    "verified_words": Meaning("words of the output that were compared", "words of four bytes"),
    "wrong_words": Meaning("those of them that were not as they should be", "words of four bytes"),
    "measured_at": Meaning("when the job that measured the cell wrote it", "UTC"),
}
_TIMES = {
    "bandwidth_gbs": Meaning("bytes read and written over the median", GBS),
    "bandwidth_low_gbs": Meaning("lower end of its interval of another run", GBS),
    "bandwidth_high_gbs": Meaning("upper end of its interval of another run", GBS),
    "median_s": Meaning("a launch: the geometric mean of the repeats' medians", SECONDS),
    "median_low_s": Meaning("lower end of what another run may find as the median", SECONDS),
    "median_high_s": Meaning("upper end of what another run may find as the median", SECONDS),
    "coverage": Meaning("confidence of the interval; smaller with very few samples", SHARE),
    "own_low_s": Meaning("as median_low_s, without what cells of a group share", SECONDS),
    "own_high_s": Meaning("as median_high_s, without it: by these two, cells compare", SECONDS),
    "within_half_width": Meaning("half of the samples' own interval over the median", SHARE),
    "between_spread": Meaning("relative standard deviation of the repeats' medians", SHARE),
    "repeat_medians_s": Meaning("the median of each repeat", SECONDS),
    "repeat_samples": Meaning("how many of the samples each repeat has"),
    "repeat_copy_gbs": Meaning("what the runtime's own copy reached in each repeat", GBS),
    "samples_s": Meaning("every sample in the order taken: the mean of its launches", SECONDS),
    "sampled_at_s": Meaning("when each sample began, from the start of its job on", SECONDS),
    "launches_per_sample": Meaning("launches that one sample is the mean of"),
    "copy_gbs": Meaning("the runtime's own copy of the same buffers, in the same rounds", GBS),
    "over_copy": Meaning("bandwidth in multiples of copy_gbs"),
}
_LAUNCH = {
    "bytes_read": Meaning("what a launch has to read, each byte once", BYTES),
    "bytes_written": Meaning("what a launch has to write, each byte once", BYTES),
    "working_set_over_cache": Meaning("bytes read and written over the device's last cache"),
    "threads_per_block": Meaning("threads of a block"),
    "blocks": Meaning("blocks of the launch"),
    "tiles": Meaning("pieces that the blocks share out among them"),
    "units": Meaning("multiprocessors, or what the device has in their place"),
    "resident_per_unit": Meaning("blocks that a multiprocessor holds at once; null if not told"),
    "registers": Meaning("registers of a thread; null if not told"),
}
_BEST = {
    "share_of_ceiling": Meaning(
        "bandwidth over the ceiling, above 1 where the cell is faster; null where there is none"
    ),
    "slower_than_best": Meaning("median over that of the group's fastest, minus one", SHARE),
    "is_fastest": Meaning("whether the cell has the group's smallest median"),
    "tied": Meaning("cells of the group that cannot be told from its fastest"),
    "candidates": Meaning("cells of the group that ended as ok"),
    "edge": Meaning("axes on whose outermost value all tied cells lie: block_x up, ..."),
}
_MODELS = {
    "measured_s": Meaning("median of a launch", SECONDS),
    "predicted_s": Meaning("what the model says of it", SECONDS),
    "measured_gbs": Meaning("bandwidth of the median", GBS),
    "predicted_gbs": Meaning("bandwidth that the model says", GBS),
    "limit": Meaning("which of the limits alone would take longest"),
    "trained": Meaning("whether the model of the device was fitted to the cell"),
    "low_s": Meaning("lower end of the model's band; null where there is none", SECONDS),
    "high_s": Meaning("upper end of the model's band; null where there is none", SECONDS),
    **{
        f"{limit}_share": Meaning(f"what {words} alone would take, over the largest limit", SHARE)
        for limit, words in (
            ("start", "the launch's start"),
            ("dispatch", "starting the blocks"),
            ("service", "instructions and lines"),
            ("waiting", "waiting for loads"),
            ("l2", "L2"),
            ("dram", "DRAM"),
        )
    },
    **{
        f"{layout}_{what}_per_{whose}": Meaning(f"{what} that a {whose} touches {words}")
        for layout, words in (("rows", "in rows"), ("tiled", "in tiles, as images lie"))
        for what in ("sectors", "lines")
        for whose in ("warp", "block")
    },
}
_ENERGY = {
    "role": Meaning("why the cell was chosen"),
    "rounds": Meaning("rounds in each of which the cell had one window"),
    "power_w": Meaning("mean power of the board in the windows", "W"),
    "idle_w": Meaning("power of the idle device, the mean of before and after", "W"),
    "gbs": Meaning("bandwidth in the windows, by the device's own times", GBS),
    "busy_share": Meaning("share of the windows that is known to be spent in launches", SHARE),
    "joules_per_gb": Meaning("energy for a gigabyte read or written, idle power included", "J/GB"),
    "joules_per_gb_low": Meaning("lower end of its 95 % interval, by t over the rounds", "J/GB"),
    "joules_per_gb_high": Meaning("upper end of it", "J/GB"),
    "net_joules_per_gb": Meaning("the same with the idle power subtracted", "J/GB"),
    "net_joules_per_gb_low": Meaning("lower end of its 95 % interval, by t over rounds", "J/GB"),
    "net_joules_per_gb_high": Meaning("upper end of it", "J/GB"),
    "window_s": Meaning("length of each window, from step to step of the counter", SECONDS),
    "window_j": Meaning("energy that the counter shows for it", "J"),
    "window_gbs": Meaning("bandwidth in it", GBS),
    "sm_clock_mhz_low": Meaning("lowest clock of the cores that was read in a window", "MHz"),
    "sm_clock_mhz_high": Meaning("highest one", "MHz"),
    "temperature_c": Meaning("highest temperature that was read in a window", "°C"),
    "throttled": Meaning("whether the device protected itself in a window"),
}
_SIMULATED = {
    "level": Meaning("level of detail: bus, partitions or banks"),
    "commands": Meaning("loads, and as many stores, by which a thread moves one element"),
    "num_partition": Meaning("blocks that share out all tiles"),
    "row_bytes": Meaning("a row of a tile", BYTES),
    "pad_bytes": Meaning("padding after each row of the array", BYTES),
    "critical_path_tiles": Meaning("tiles that the busiest multiprocessor copies"),
    "makespan_cycles": Meaning("until the last write has crossed the bus", CYCLES),
    "bus_busy_share": Meaning("share of that time in which the bus is busy", SHARE),
    "lonely_share": Meaning("share in which fewer than half of the units have work left", SHARE),
    "row_hit_share": Meaning("requests that found their row of memory open", SHARE),
    "mean_wait_cycles": Meaning("a request's mean time at its partition", CYCLES),
    "longest_queue": Meaning("requests that waited at one partition at most"),
    "busiest_partition": Meaning("requests of the busiest partition over the mean of all"),
    "partition": Meaning("which partition of memory, from zero"),
    "from_cycle": Meaning("the stretch begins", CYCLES),
    "to_cycle": Meaning("the stretch ends", CYCLES),
    "bursts": Meaning("bursts that the partition's memory moved"),
    "requests": Meaning("requests that came to the partition"),
    "row_openings": Meaning("rows that its banks opened"),
    "waiting": Meaning("requests that waited there in the mean"),
    "simulated_gbs": Meaning("bandwidth that the simulation says", GBS),
    "error": Meaning("simulated over measured bandwidth, minus one"),
}
# Of two runs, A before and B after; a change is of the time of a launch.
_COMPARED = {
    "params": Meaning("launch parameters, in one text"),
    "a_s": Meaning("a launch in A, of several runs in the first", SECONDS),
    "b_s": Meaning("a launch in B, of several runs in the first", SECONDS),
    "a_gbs": Meaning("bandwidth of A's best, of several runs in the first", GBS),
    "b_gbs": Meaning("bandwidth of B's best, of several runs in the first", GBS),
    "change": Meaning("time in B over time in A, minus one"),
    "change_low": Meaning("lower end of its 95 % interval; null where nothing tells it"),
    "change_high": Meaning("upper end of its 95 % interval; null where nothing tells it"),
    "beside_copy": Meaning("the change of the time in multiples of the runtime's own copy"),
    "beside_copy_low": Meaning("lower end of its 95 % interval"),
    "beside_copy_high": Meaning("upper end of its 95 % interval"),
    "p_value": Meaning("of no change, by the less sure of both; for this row alone", SHARE),
    "verdict": Meaning("slower, faster, same or undecided, corrected for the number of rows"),
    "best_a": Meaning("launch parameters of A's fastest cell"),
    "best_b": Meaning("launch parameters of B's fastest cell"),
    "alarm": Meaning("whether the best surely got slower by more than delta"),
    "whole": Meaning("change of the mean log time of all cells that both have, as a share"),
    "whole_low": Meaning("lower end of its 95 % interval"),
    "whole_high": Meaning("upper end of its 95 % interval"),
    "whole_verdict": Meaning("slower, faster, same or undecided, of all these cells together"),
    "winner_held": Meaning("whether A's fastest cell is among B's tied ones"),
    "tied_a": Meaning("cells that cannot be told from A's fastest"),
    "tied_b": Meaning("cells that cannot be told from B's fastest"),
    "tied_both": Meaning("cells that are both"),
    "only_a": Meaning("cells that are verified in A and not in B"),
    "only_b": Meaning("cells that are verified in B and not in A"),
    **{v: Meaning(f"cells of the group that are {v}") for v in ("slower", "faster", "same")},
    "undecided": Meaning("cells of the group of which neither is sure"),
}
_HISTORY = {
    "number": Meaning("place of the run among all of the history, in time, from 1"),
    "run": Meaning("name of the run, with as much of its path as tells it from others"),
    "quantity": Meaning("which column of the history has another mean from this run on"),
    "before": Meaning("mean of that column since the change point before", "of that column"),
    "after": Meaning("mean of that column from this run on", "of that column"),
    "cause": Meaning("of a best: what changed, as the runtime's own copy tells; else null"),
    "differences": Meaning("what the run was measured with otherwise than the one before it"),
}
MEANINGS: Mapping[str, Meaning] = {
    **_WHICH,
    **_ENDED,
    **_TIMES,
    **_LAUNCH,
    **_BEST,
    **_MODELS,
    **_ENERGY,
    **_SIMULATED,
    **_COMPARED,
    **_HISTORY,
}
# By table and column.
APART: Mapping[tuple[str, str], Meaning] = {
    ("simulated", "variant"): Meaning("which simulated machine, of several that differ a little"),
    ("simulated", "bandwidth_gbs"): Meaning("bytes read and written over the makespan", GBS),
    ("simulated", "tiles"): Meaning("tiles of the array"),
    ("energy", "params"): Meaning("launch parameters, name=value, between blanks"),
    ("energy", "message"): Meaning("why the cell has no figures; null where it has"),
    ("change_points", "change"): Meaning("after over before, minus one"),
}


def meaning(table: str, column: str) -> Meaning:
    """What a column of a table says. Raises KeyError where nobody has written it down."""
    return APART.get((table, column)) or MEANINGS[column]
