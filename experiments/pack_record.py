"""Pack a folder of recorded shards into one file, and compare the file with the shards.

    .venv/bin/python experiments/pack_record.py reports/reference/nvidia-h200

Writes ``packed.parquet`` beside the shards, unpacks it, compares every cell bit for bit but for
``sampled_at_s``, which is left out, and only then removes the shards.
"""

import argparse
import io
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow/scripts"))

from gpushmoo.core.schema import SCHEMA_VERSION
from gpushmoo.storage.store import (
    DERIVED,
    KEY,
    MOMENTS,
    PACKED,
    PROVENANCE,
    SHARD,
    UNPACKED,
    read_shard,
    restored,
    unpack,
)
from gpushmoo.storage.wholefile import whole_file

# One page for each column, whatever its length: neighbours help to compress.
OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 19,
    "store_schema": False,
    "write_statistics": False,
    "write_page_checksum": True,
    "row_group_size": 2**31,
    "data_page_size": 2**30,
    "max_rows_per_page": 2**31 - 1,
    "dictionary_pagesize_limit": 2**30,
}


def shards_in(folder: Path) -> list[Path]:
    """The shards of a record that is not packed, or not yet."""
    found = (p for p in folder.rglob("*.parquet") if p.name != PACKED)
    return sorted(p for p in found if UNPACKED not in p.parts)


def present_shard(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Read a shard of any version as one of today's, because its names are mapped on reading."""
    table, metadata = read_shard(path)
    return table, {**metadata, "schema_version": SCHEMA_VERSION}


def packed_table(folder: Path) -> pa.Table:
    """All shards of `folder`, without the columns that can be computed of every shard."""
    shards = {path: present_shard(path) for path in shards_in(folder)}
    tables = [table.replace_schema_metadata() for table, _ in shards.values()]
    names = [KEY, *DERIVED]
    told = [(metadata["axes"], metadata["device"]["cache"]) for _, metadata in shards.values()]
    again = [restored(t.drop_columns(names), *m) for t, m in zip(tables, told, strict=True)]
    pairs = list(zip(again, tables, strict=True))
    same = [n for n in names if all(a.column(n).equals(t.column(n)) for a, t in pairs)]
    print(f"kept, as they do not follow bit for bit: {sorted({*names} - {*same})}")
    kept = [t.drop_columns([MOMENTS, *same]) for t in tables]
    for number, (path, (_, metadata)) in enumerate(shards.items()):
        told = json.dumps(metadata, sort_keys=True)
        # Neighbours are alike so, and keys, by which shards are sorted, are as good as random.
        order = ["variant", "height", "width", "cache_state", "timing_mode", *metadata["axes"]]
        kept[number] = kept[number].sort_by([(name, "ascending") for name in order])
        rows = len(kept[number])
        where = pa.array([path.relative_to(folder).as_posix()] * rows)
        first = pa.array([told, *[None] * (rows - 1)], pa.string())
        kept[number] = kept[number].append_column(SHARD, where).append_column(PROVENANCE, first)
    return pa.concat_tables(kept, promote_options="default").combine_chunks()


def smallest_forms(table: pa.Table) -> dict[str, list[str]]:
    """Which columns are smaller as a dictionary and which with their bytes split."""
    forms: dict[str, list[str]] = {"use_dictionary": [], "use_byte_stream_split": []}
    for field in table.schema:
        listed = pa.types.is_list(field.type)
        leaf = f"{field.name}.list.element" if listed else field.name
        if pa.types.is_floating(field.type.value_type if listed else field.type):
            sizes = {form: written(table.select([field.name]), **{form: [leaf]}) for form in forms}
            forms[min(sizes, key=lambda form: sizes[form])].append(leaf)
        elif field.name != PROVENANCE:
            forms["use_dictionary"].append(leaf)
    return forms


def written(table: pa.Table, **forms: list[str]) -> int:
    """How many bytes the table takes so."""
    out = io.BytesIO()
    pq.write_table(table, out, **OPTIONS, **{"use_dictionary": False, **forms})
    return out.tell()


def pack(folder: Path) -> None:
    """Write the packed record, and remove its shards once they are verified."""
    table, shards = packed_table(folder), shards_in(folder)
    with whole_file(folder / PACKED) as own:
        pq.write_table(table, own, **OPTIONS, **smallest_forms(table))
    before = sum(path.stat().st_size for path in shards)
    with TemporaryDirectory() as scratch:
        unpack(folder / PACKED, Path(scratch))
        for path in shards:
            name = path.relative_to(folder)
            own_cells, told = read_shard(Path(scratch) / name)
            cells, metadata = present_shard(path)
            place = cells.schema.get_field_index(MOMENTS)
            left_out = pa.array([[]] * len(cells), cells.schema.field(place).type)
            cells = cells.set_column(place, cells.schema.field(place), left_out)
            if told != metadata or not own_cells.equals(cells):
                raise SystemExit(f"{folder}: {name} is not what was packed")
    for path in shards:
        path.unlink()
    for path in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
        if not any(path.iterdir()):
            path.rmdir()
    print(f"{folder}: {before} -> {(folder / PACKED).stat().st_size} bytes, {len(table)} cells")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("record", type=Path)
    pack(parser.parse_args().record)
