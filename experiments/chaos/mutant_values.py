"""Values that a cell cannot have, or that contradict the rest of its row."""

from __future__ import annotations

import math
from random import Random

from gpushmoo.core.schema import Status
from mutant_file import Row, ShardFile

_TIMES = (
    *("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs", "median_s", "median_low_s"),
    *("median_high_s", "coverage", "own_low_s", "own_high_s", "within_half_width", "over_copy"),
    *("copy_gbs", "working_set_over_cache"),
)
_COUNTS = ("launches_per_sample", "threads_per_block", "blocks", "tiles", "verified_words")
_TEXTS = (
    "kernel",
    "dtype",
    "variant",
    "cache_state",
    "launch_kind",
    "device_uuid",
    "device_name",
    "backend",
)
_LISTS = ("samples_s", "sampled_at_s", "repeat_medians_s", "repeat_samples", "repeat_copy_gbs")
_IMPOSSIBLE = (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e300)


def _set_time(row: Row, rng: Random) -> str:
    """A number that follows from others: possible or not, it is another one."""
    name = rng.choice(_TIMES)
    row[name] = rng.choice([row[name] * rng.uniform(1.001, 3.0), None, rng.choice(_IMPOSSIBLE)])
    return name


def _set_count(row: Row, rng: Random) -> str:
    """A count that a verified cell cannot have."""
    name = rng.choice(_COUNTS)
    row[name] = rng.choice([-1, 0, -(2**31)])
    return name


def _set_bytes(row: Row, rng: Random) -> str:
    name = rng.choice(["bytes_read", "bytes_written", "units", "height", "width"])
    row[name] = rng.choice([0, -1, row[name] + 4, row[name] * 2])
    return name


def _set_text(row: Row, rng: Random) -> str:
    name = rng.choice(_TEXTS)
    named = {"dtype": "double", "cache_state": "flushed", "variant": "streaming"}
    row[name] = rng.choice(["", "banana", row[name] + " ", "x" * 5000, named.get(name, "opencl")])
    return name


def _set_list(row: Row, rng: Random) -> str:
    name = rng.choice(_LISTS)
    values = list(row[name])
    if name == "repeat_samples":
        row[name] = rng.choice([[], [values[0] + 1], [*values, 6], [0], [-1]])
        return name
    place = rng.randrange(len(values))
    values[place] = rng.choice([math.nan, math.inf, -1.0])
    shorter, longer = row[name][:-1], [*row[name], row[name][-1]]
    scaled = [v * 1.5 for v in row[name]]
    # Moments may be any in rising order.
    row[name] = rng.choice(
        [[], values, shorter, longer, row[name][::-1] if name == "sampled_at_s" else scaled]
    )
    return name


def _set_null(row: Row, rng: Random) -> str:
    """What a measured cell always has."""
    names = ("launches_per_sample", "verified_words", "wrong_words")
    name = rng.choice(names)
    row[name] = None
    return name


def _set_other(row: Row, rng: Random) -> str:
    """What a measured cell never has."""
    changes = {
        "wrong_words": rng.choice([1, -1]),
        "between_spread": rng.choice([0.0, 0.01, -1.0, math.inf]),
        "message": rng.choice(["", "one launch took 11 s"]),
        "registers": -1,
        "resident_per_unit": -1,
        "verified_words": row["verified_words"] + 1,
        "threads_per_block": rng.choice([1025, 2**31 - 1]),
    }
    name = rng.choice(sorted(changes))
    row[name] = changes[name]
    return name


def _set_moment(row: Row, rng: Random) -> str:
    name = "measured_at"
    row[name] = row[name].replace(year=rng.choice([1970, 2199]))
    return name


_VALUES = (
    *(_set_time, _set_time, _set_count, _set_bytes, _set_text),
    *(_set_list, _set_list, _set_null, _set_other, _set_moment),
)


def change_value(shard: ShardFile, rng: Random) -> str:
    row = rng.choice([r for r in shard.rows if r["status"] == Status.OK])
    name = rng.choice(_VALUES)(row, rng)
    return f"{name} = {str(row[name])[:60]}"


def change_axis_value(shard: ShardFile, rng: Random) -> str:
    row, axis = rng.choice(shard.rows), rng.choice(shard.metadata["axes"])
    row[axis] = rng.choice([row[axis] + 1, row[axis] * 2, 0, -1, None])
    return f"{axis} = {row[axis]}"


def change_status(shard: ShardFile, rng: Random) -> str:
    """The status alone: the rest of the row then belongs to another one."""
    row = rng.choice([r for r in shard.rows if r["status"] in (Status.OK, "too_many_threads")])
    before = row["status"]
    # A device that is lost at once takes all cells with it, those over a limit too.
    possible = {before} if before == Status.OK else {before, Status.LOST_DEVICE.value}
    others = [s.value for s in Status if s.value not in possible]
    row["status"] = rng.choice(["banana", "", "OK", *others])
    return f"{before} to {row['status']}"
