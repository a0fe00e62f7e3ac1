"""Sorts more rows by their cell key than memory holds, by way of sorted runs on disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KEY = "cell_key"
# Rows that are sorted at once, in bytes of Arrow memory. Sorting takes their copy, writing Parquet
# about as much again.
RUN_BYTES = 128 * 2**20
# Keys are hashes, so that equal ranges of them hold about equally many rows. So many digits make
# 4,096 ranges, enough for 256 GiB of rows in a partition.
_KEY_DIGITS = 3
_KEY_RANGE = 16**_KEY_DIGITS


class KeySorter:
    """Takes rows in any order and gives them back sorted by key, equal keys in the order taken.

    What does not fit `run_bytes` goes to `folder`, a sorted run a file, each cut into `parts` equal
    ranges of keys; `tables` then puts one range of all runs together at a time. Use it as a context
    manager: in the end the folder is removed. Raises OSError (no space).
    """

    def __init__(self, schema: pa.Schema, folder: Path, n_bytes: int, run_bytes: int) -> None:
        """`n_bytes` is about what all rows will take: a wrong guess costs memory or time only."""
        self._schema, self._folder, self._run_bytes = schema, folder, run_bytes
        # The ranges of random keys differ a little, so they are chosen somewhat smaller than runs.
        self._parts = 1 if n_bytes <= run_bytes else min(_KEY_RANGE, 2 * n_bytes // run_bytes)
        self._batches: list[pa.RecordBatch] = []
        self._held = 0
        self._runs: list[Path] = []

    def __enter__(self) -> KeySorter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch of rows in the schema given to the sorter; it may be written to disk."""
        self._batches.append(batch)
        self._held += batch.nbytes
        if self._held > self._run_bytes and self._parts > 1:
            self._write_run()

    def tables(self) -> Iterator[pa.Table]:
        """All rows in order, a range of keys at a time: at least one table, if need be empty."""
        if not self._runs:
            yield self._sorted_batches()
            return
        self._write_run()
        for part in range(self._parts):
            batches = [self._read(run, part) for run in self._runs]
            table = pa.Table.from_batches(batches, schema=self._schema)
            if len(table):
                yield table.sort_by(KEY)

    def _sorted_batches(self) -> pa.Table:
        """The rows held, which are let go."""
        table = pa.Table.from_batches(self._batches, schema=self._schema)
        self._batches, self._held = [], 0
        return table.sort_by(KEY)

    def _write_run(self) -> None:
        if not self._batches:
            return
        table = self._sorted_batches()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{len(self._runs)}.arrow"
        ends = np.searchsorted(_range_of(table, self._parts), np.arange(self._parts), "right")
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(str(path), self._schema, options=options) as writer:
            first = 0
            for last in ends.tolist():
                part = table.slice(first, last - first).combine_chunks()
                batches = part.to_batches() or [_empty(self._schema)]
                writer.write_batch(batches[0])
                first = last
        self._runs.append(path)

    @staticmethod
    def _read(run: Path, part: int) -> pa.RecordBatch:
        with pa.OSFile(str(run)) as source:
            return pa.ipc.open_file(source).get_batch(part)


def _range_of(table: pa.Table, parts: int) -> np.ndarray:
    """For each row the number of the range, out of `parts`, that its key lies in."""
    digits = pc.utf8_slice_codeunits(table.column(KEY), 0, _KEY_DIGITS)
    places = [int(text, 16) * parts // _KEY_RANGE for text in digits.unique().to_pylist()]
    codes = digits.combine_chunks().dictionary_encode().indices.to_numpy()
    of_row: np.ndarray = np.array(places, np.int64)[codes]
    return of_row


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)
