"""Whether a complete run is right, by code of its own: pyarrow, NumPy and the configuration."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from sweeps import CELL_TIMEOUT_S, Config, PlannedCell, planned_cells, shard_paths

Row = Mapping[str, Any]
THREAD_LIMIT = 1024
SAMPLES = 6
# What a struck process may end by that a kernel's fault ends it by as well: the cell that ran is
# blamed, rightly for all that anyone can tell.
AMBIGUOUS = ("SIGSEGV", "SIGQUIT", "SIGUSR1")


@dataclass(frozen=True)
class Finding:
    """One way in which a round broke a promise: `kind` to count by, `detail` to look at."""

    kind: str
    detail: str


def read_dataset(folder: Path) -> list[dict[str, Any]]:
    """All rows of a hive-partitioned data set, with ``kernel`` and ``dtype`` from the paths."""
    rows = []
    for path in sorted(folder.rglob("*.parquet")):
        keys = dict(p.split("=", 1) for p in path.relative_to(folder).parts[:-1])
        rows += [row | keys for row in pq.ParquetFile(path).read().to_pylist()]
    return rows


def judge_dataset(folder: Path, config: Config) -> Iterator[Finding]:
    """What is wrong with the data set of a complete run of `config`."""
    try:
        rows = read_dataset(folder)
    except (OSError, pa.ArrowException, ValueError) as err:
        yield Finding("data set unreadable", str(err).split("\n")[0])
        return
    planned = {cell.key: cell for cell in planned_cells(config)}
    counted = Counter(row["cell_key"] for row in rows)
    missing = planned.keys() - counted.keys()
    extra = counted.keys() - planned.keys()
    doubled = [key for key, n in counted.items() if n > 1]
    if missing or extra or doubled:
        yield Finding(
            "wrong rows",
            f"{len(planned)} cells planned, {len(rows)} rows: {len(missing)} missing, "
            f"{len(extra)} foreign, {len(doubled)} doubled",
        )
    for row in rows:
        if row["cell_key"] in planned:
            yield from _judge_row(row, planned[row["cell_key"]], config["measure"]["repeats"])
    if len({row["device_uuid"] for row in rows}) > 1:
        yield Finding("wrong rows", "rows of several devices")


def _judge_row(row: Row, cell: PlannedCell, repeats: int) -> Iterator[Finding]:
    who = f"cell {cell.key} of {cell.sweep}"
    own = {name: row.get(name) for name in ("variant", "height", "width", "cache_state")}
    wanted = {
        "variant": cell.variant,
        "height": cell.height,
        "width": cell.width,
        "cache_state": cell.cache_state,
    }
    axes = dict(cell.axes)
    if own != wanted or any(row.get(a) != v for a, v in axes.items()):
        yield Finding("wrong rows", f"{who} has the columns of another cell")
    over = cell.threads > THREAD_LIMIT
    if row["status"] != ("too_many_threads" if over else "ok"):
        message = str(row["message"])
        told = any(f"ended by {name}" in message for name in AMBIGUOUS)
        kind = "cell blamed for a signal that faults send, too" if told else "innocent cell blamed"
        yield Finding(kind, f"{who} is '{row['status']}': {message}")
    elif not over:
        yield from (Finding("wrong rows", f"{who}: {text}") for text in _implausible(row, repeats))
        if row["bytes_read"] != cell.bytes_each_way or row["bytes_written"] != cell.bytes_each_way:
            yield Finding("wrong rows", f"{who} has a wrong number of bytes")


def _implausible(row: Row, repeats: int) -> Iterator[str]:
    """What in the values of an ``ok`` row cannot be, or contradicts the rest of the row."""
    samples = np.array(row["samples_s"], dtype=float)
    counts = row["repeat_samples"]
    if len(counts) != repeats or any(n < SAMPLES for n in counts):
        yield f"{counts} samples in {repeats} repeats"
        return
    if sum(counts) != len(samples) or len(row["sampled_at_s"]) != len(samples):
        yield "lists of different lengths"
        return
    if not (np.isfinite(samples).all() and (samples > 0).all()):
        yield "a sample is no time"
    if (samples > CELL_TIMEOUT_S).any():
        yield "a sample is longer than a launch may take"
    parts = np.split(samples, np.cumsum(counts)[:-1])
    medians = np.array([np.median(part) for part in parts])
    if not np.allclose(medians, row["repeat_medians_s"], rtol=1e-12):
        yield "medians of the repeats are not those of their samples"
    median = math.exp(np.log(medians).mean())
    if not math.isclose(median, row["median_s"], rel_tol=1e-9):
        yield "the median is not that of its repeats"
    moved = row["bytes_read"] + row["bytes_written"]
    if not math.isclose(row["bandwidth_gbs"], moved * 1e-9 / row["median_s"], rel_tol=1e-9):
        yield "the bandwidth is not bytes over time"
    if not row["median_low_s"] <= row["median_s"] <= row["median_high_s"]:
        yield "the median is outside of its interval"
    if not row["verified_words"] or row["wrong_words"] != 0:
        yield "an ok cell that was not verified"


def judge_shards(cells: Path, config: Config) -> Iterator[Finding]:
    """Whether each shard is the planned one: an orphan may write after the data set is made."""
    keys: dict[int, list[str]] = {}
    for place, (sweep, dtype, index, count, repeat) in shard_paths(config).items():
        try:
            table = pq.ParquetFile(cells / place).read()
            metadata = json.loads((table.schema.metadata or {})[b"gpushmoo"])
        except (OSError, pa.ArrowException, ValueError, KeyError) as err:
            yield Finding("shard unreadable", f"{place}: {str(err).splitlines()[0]}")
            continue
        params = metadata["params"]
        wanted = config["kernels"][sweep]["axes"]
        axes = {name: sorted(values) for name, values in params["axes"].items()}
        same = (params["dtype"], params["shard"], params["repeat"], params["seed"]) == (
            *(dtype, [index, count], repeat, config["seed"]),
        )
        if not same or axes != {name: sorted(values) for name, values in wanted.items()}:
            yield Finding("shard of another configuration", place)
        keys.setdefault(repeat, []).extend(table.column("cell_key").to_pylist())
    planned = sorted(cell.key for cell in planned_cells(config))
    over = {cell.key for cell in planned_cells(config) if cell.threads > THREAD_LIMIT}
    for repeat, found in keys.items():
        # Later repeats measure what was ok in the first.
        expected = planned if repeat == 1 else [key for key in planned if key not in over]
        if sorted(found) != expected:
            yield Finding(
                "wrong rows in shards",
                f"repeat {repeat} holds {len(found)} of {len(expected)} cells",
            )


def judge_products(results: Path) -> Iterator[Finding]:
    """Whether every product of a complete run can be read as what its name says."""
    for path in products(results):
        reason = _unreadable(path)
        if reason is not None:
            yield Finding("damaged product left", f"{path.relative_to(results)}: {reason}")
    for name in ("report.pdf", "report.json", "summary/verdict.txt", "summary/ceiling.json"):
        if not (results / name).is_file():
            yield Finding("product missing", name)


def products(results: Path) -> list[Path]:
    """The files of a run that a reader may open: without logs, caches and what was set aside."""
    return sorted(
        path
        for path in results.rglob("*")
        if path.is_file()
        and path.relative_to(results).parts[0] not in (".cache", "logs", "quarantine")
        and not any(part.startswith(".") for part in path.relative_to(results).parts)
    )


def _unreadable(path: Path) -> str | None:
    raw = path.read_bytes()
    if not raw:
        return "empty"
    try:
        match path.suffix:
            case ".json":
                json.loads(raw)
            case ".svg":
                ET.fromstring(raw)
            case ".parquet":
                pq.ParquetFile(path).read()
            case ".pdf":
                # Readers look for the end within the last kilobyte: a sum may stand behind it.
                if not (raw.startswith(b"%PDF-") and b"%%EOF" in raw[-1024:]):
                    return "not a whole PDF"
            case ".txt":
                raw.decode()
    except (ValueError, ET.ParseError, OSError, pa.ArrowException) as err:
        return str(err).split("\n")[0]
    return None


def judge_locks(root: Path) -> Iterator[Finding]:
    """Whether Snakemake's locks and the device's are free again."""
    left = sorted(p.name for p in (root / ".snakemake" / "locks").glob("*"))
    if left:
        yield Finding("lock left", f"Snakemake's {', '.join(left)}")
    for path in sorted((root / ".locks").glob("*.lock")):
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield Finding("lock left", path.name)
        else:
            lock.release()


def hidden_files(results: Path, planted: Sequence[Path]) -> list[str]:
    """Temporary files that a killed writer has left: no promise, but counted."""
    return sorted(
        str(path.relative_to(results))
        for folder in ("cells", "model", "summary", "figures")
        for path in (results / folder).rglob(".*")
        if path not in planted and path.is_file() and path.name != ".snakemake_timestamp"
    )
