"""Shards that must be refused: one or two files of a run's shards changed, in drawn ways.

What could have come out of the measurement as well cannot be told from what did; such changes are
not drawn. UNTELLABLE lists them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from gpushmoo.core.median import median_interval
from gpushmoo.core.schema import Status
from gpushmoo.core.space import first_repeat_of
from gpushmoo.storage.filesum import MARK
from mutant_file import ShardFile, key_of
from mutant_provenance import (
    change_axes,
    change_device,
    change_digest,
    change_model,
    change_params,
    change_version,
    exchange_files,
    remove_key,
    remove_param,
    take_metadata,
)
from mutant_values import change_axis_value, change_status, change_value
from shards import ShardSet

# The kind of a draw that changes nothing.
UNCHANGED = "unchanged"

# By column or key of the provenance, what no reader of a shard can tell from what was measured.
UNTELLABLE: Mapping[str, str] = {
    "registers": "the compiler's; no other column follows from it",
    "resident_per_unit": "the device's answer",
    "launches_per_sample": "any number from 1 to 256: chosen by a launch that is not kept",
    "sampled_at_s": "any moments in rising order",
    "samples_s": "a change that leaves median and interval, or one that all derived columns follow",
    "status": "ok made a fault, if all columns of a fault's row follow; one fault made another",
    "message": "the text of a fault",
    "status, of a cell over a limit": "lost_device: a device lost at once takes all cells with it",
    "threads_per_block": "what the workload's launch says, unless that is asked again",
    "blocks": "the same",
    "tiles": "the same",
    "verified_words": "the same number in all rows of a problem, unless the workload is asked",
    "measured_at": "another moment, if all rows have it",
    "device": "clock, driver, runtime, memory: no row repeats them; another UUID in all rows",
    "controls": "moments and seconds, unless the workload is asked how many bytes were copied",
    "builds, build_failures, host, machine_code, readings, written_at, gpushmoo": "any text",
}


# Bytes


def _flip(raw: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ 1 << rng.randrange(8)]) + raw[place + 1 :]


def _truncate(raw: bytes, rng: Random) -> bytes:
    return raw[: rng.choice([0, 1, len(raw) // 2, len(raw) - 1, rng.randrange(len(raw))])]


def _append(raw: bytes, rng: Random) -> bytes:
    return raw + rng.choice([b"\0", rng.randbytes(rng.randrange(1, 100)), raw, raw[-8:]])


def _exchange_halves(raw: bytes, rng: Random) -> bytes:
    place = rng.randrange(1, len(raw))
    return raw[place:] + raw[:place]


def _zero(raw: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(raw))
    length = min(rng.randrange(1, 600), len(raw) - place)
    return raw[:place] + bytes(length) + raw[place + length :]


def _cut_sum(raw: bytes, rng: Random) -> bytes:
    place = raw.rindex(MARK)
    return raw[:place] + raw[place + len(MARK) + hashlib.sha256().digest_size :]


def _replace_sum(raw: bytes, rng: Random) -> bytes:
    place = raw.rindex(MARK) + len(MARK)
    length = hashlib.sha256().digest_size
    return raw[:place] + rng.randbytes(length) + raw[place + length :]


def _break_mark(raw: bytes, rng: Random) -> bytes:
    return raw.replace(MARK, rng.randbytes(len(MARK)))


_BYTES: Mapping[str, Callable[[bytes, Random], bytes]] = {
    "bit flipped": _flip,
    "truncated": _truncate,
    "bytes appended": _append,
    "parts exchanged": _exchange_halves,
    "range zeroed": _zero,
    "sum cut out": _cut_sum,
    "sum replaced": _replace_sum,
    "mark of the sum overwritten": _break_mark,
}


def mutate_bytes(shards: ShardSet, rng: Random) -> tuple[str, list[Path]]:
    """Change bytes of a file, or put another shard's there."""
    path = rng.choice(shards.paths)
    raw = path.read_bytes()
    kind = rng.choice([*_BYTES, "content of another shard"])
    if kind in _BYTES:
        changed = _BYTES[kind](raw, rng)
    else:
        changed = rng.choice([p for p in shards.paths if p != path]).read_bytes()
    path.write_bytes(changed)
    return (UNCHANGED, []) if changed == raw else (kind, [path])


# Other software


def mutate_by_other_software(shards: ShardSet, rng: Random) -> tuple[str, list[Path]]:
    """Write a shard anew without our sum, as it was or changed."""
    shard = ShardFile.read(rng.choice(shards.paths))
    table = shard.table()
    kind = rng.choice(["as it was", "by pandas", "other compression", "without provenance", "rows"])
    match kind:
        case "by pandas":
            table.to_pandas().to_parquet(shard.path)
        case "other compression":
            pq.write_table(table, shard.path, compression=rng.choice(["snappy", "gzip", "none"]))
        case "without provenance":
            pq.write_table(table.replace_schema_metadata(), shard.path)
        case "rows":
            change = rng.choice([_drop_rows, _double_rows, _banana, _absurd_bandwidth])
            change(shard, rng)
            shard.write(with_sum=False)
        case _:
            shard.write(with_sum=False)
    return f"rewritten by other software: {kind}", [shard.path]


def _banana(shard: ShardFile, rng: Random) -> None:
    rng.choice(shard.rows)["status"] = "banana"


def _absurd_bandwidth(shard: ShardFile, rng: Random) -> None:
    rng.choice(shard.rows)["bandwidth_gbs"] = 9.9e9


# Rows, with a sum that holds


def _drop_rows(shard: ShardFile, rng: Random) -> None:
    kept = rng.choice([0, rng.randrange(len(shard.rows)), len(shard.rows) - 1])
    shard.rows = sorted(rng.sample(shard.rows, kept), key=lambda r: r["cell_key"])


def _double_rows(shard: ShardFile, rng: Random) -> None:
    shard.rows.append(dict(rng.choice(shard.rows)))


def _add_row(shard: ShardFile, rng: Random) -> None:
    """A cell that nobody planned, with the key that it should have."""
    row = dict(rng.choice(shard.rows))
    axis = rng.choice(shard.metadata["axes"])
    row[axis] = row[axis] + rng.choice([1, 3, 1000])
    row["cell_key"] = key_of(row, shard.metadata["axes"])
    shard.rows.append(row)


def _replace_row(shard: ShardFile, rng: Random) -> None:
    """An unplanned cell in the place of a planned one: the number of rows stays."""
    _add_row(shard, rng)
    shard.rows.pop(rng.randrange(len(shard.rows) - 1))


def _change_key(shard: ShardFile, rng: Random) -> str:
    row = rng.choice(shard.rows)
    key = row["cell_key"]
    row["cell_key"] = rng.choice([f"{rng.getrandbits(64):016x}", key.upper() + "x", key[:-1], ""])
    return f"{key} to {row['cell_key']}"


def _exchange_columns(shard: ShardFile, rng: Random) -> str:
    """Two cells exchange one column of what was measured of them."""
    name = rng.choice(["median_s", "bandwidth_gbs", "samples_s", "status", "cell_key"])
    one, two = rng.sample(shard.rows, 2)
    one[name], two[name] = two[name], one[name]
    return str(name)


def _scale_consistently(shard: ShardFile, rng: Random) -> None:
    """Times that no device takes, with all that is derived from them right."""
    ok = [r for r in shard.rows if r["status"] == Status.OK]
    row = rng.choice(ok)
    factor = rng.choice([1e-9, 1e-12, 1e9])
    row["samples_s"] = [s * factor for s in row["samples_s"]]
    m = median_interval(row["samples_s"])
    gb = (row["bytes_read"] + row["bytes_written"]) * 1e-9
    row |= {"median_s": m.median, "coverage": m.coverage, "repeat_medians_s": [m.median]}
    row |= {"median_low_s": m.low, "median_high_s": m.high, "own_low_s": m.low}
    row |= {"own_high_s": m.high, "bandwidth_gbs": gb / m.median}
    row |= {"bandwidth_low_gbs": gb / m.high, "bandwidth_high_gbs": gb / m.low}
    row |= {"within_half_width": m.relative_half_width}
    row["over_copy"] = row["bandwidth_gbs"] / row["copy_gbs"]


def _exchange_rows(shard: ShardFile, rng: Random, other: ShardFile) -> None:
    """A row of another shard comes in the place of one."""
    theirs = rng.randrange(len(other.rows))
    mine = rng.randrange(len(shard.rows))
    shard.rows[mine], other.rows[theirs] = other.rows[theirs], shard.rows[mine]


def _change_schema(shard: ShardFile, rng: Random) -> str:
    place = rng.randrange(len(shard.schema))
    field = shard.schema.field(place)
    kind = rng.choice(["renamed", "left out", "one more", "other type"])
    match kind:
        case "renamed":
            shard.schema = shard.schema.set(place, field.with_name(field.name + "_"))
            for row in shard.rows:
                row[field.name + "_"] = row.pop(field.name)
        case "left out":
            shard.schema = shard.schema.remove(place)
        case "one more":
            shard.schema = shard.schema.append(pa.field("more", pa.int64()))
        case _:
            place = shard.schema.get_field_index("height")
            shard.schema = shard.schema.set(place, pa.field("height", pa.float64(), nullable=False))
    return f"{kind}, {field.name}"


_ALONE: Mapping[str, Callable[[ShardFile, Random], Any]] = {
    "rows dropped": _drop_rows,
    "row doubled": _double_rows,
    "unplanned row added": _add_row,
    "unplanned row in the place of a planned one": _replace_row,
    "key changed": _change_key,
    "column exchanged between two rows": _exchange_columns,
    "times scaled with all that follows": _scale_consistently,
    "schema changed": _change_schema,
    "value changed": change_value,
    "axis value changed": change_axis_value,
    "status changed": change_status,
    "parameter changed": change_params,
    "parameter removed": remove_param,
    "axes of the provenance changed": change_axes,
    "schema version changed": change_version,
    "kernel digest changed": change_digest,
    "key of the provenance removed": remove_key,
    "device of the provenance changed": change_device,
    "device model changed": change_model,
}
_PAIRED: Mapping[str, Callable[[ShardFile, Random, ShardFile], None]] = {
    "rows exchanged between shards": _exchange_rows,
    "provenance of another shard": take_metadata,
    "files exchanged": exchange_files,
    "repeats exchanged": exchange_files,
}
# Draws: values of columns are most of what can be changed.
_WEIGHTS = {"value changed": 12, "parameter changed": 5, "status changed": 4}


def mutate_with_sum(shards: ShardSet, rng: Random) -> tuple[str, list[Path]]:
    """Change rows or provenance of a shard, or of two, and write it with a sum that holds."""
    kinds = [*_ALONE, *_PAIRED]
    kind = rng.choices(kinds, [_WEIGHTS.get(k, 1) for k in kinds])[0]
    path = rng.choice(shards.paths)
    wanted = _are_repeats if kind == "repeats exchanged" else _are_neighbours
    paths = [path]
    if kind in _PAIRED:
        paths.append(rng.choice([p for p in shards.paths if p != path and wanted(p, path)]))
    files = [ShardFile.read(p) for p in paths]
    before = [file.table() for file in files]
    if kind in _PAIRED:
        _PAIRED[kind](files[0], rng, files[1])
    elif detail := _ALONE[kind](files[0], rng):
        kind = f"{kind}: {detail}"
    if all(f.table().equals(b, check_metadata=True) for f, b in zip(files, before, strict=True)):
        return UNCHANGED, []
    for file in files:
        file.write()
    return kind, paths


def _are_repeats(one: Path, two: Path) -> bool:
    return first_repeat_of(one) == first_repeat_of(two)


def _are_neighbours(one: Path, two: Path) -> bool:
    """Whether both hold cells of one sweep and dtype."""
    return one.parent == two.parent


CLASSES: Mapping[str, tuple[int, Callable[[ShardSet, Random], tuple[str, list[Path]]]]] = {
    "bytes": (25, mutate_bytes),
    "other software": (10, mutate_by_other_software),
    "with a sum that holds": (65, mutate_with_sum),
}
