"""The page's data: an index, and two packed blocks of columns for each kernel and type.

A block is a JSON header, which names the columns and says how each is written, and the arrays
behind it, little-endian and with the first bytes of all numbers first, the second ones next: bytes
that are alike stand together, which gzip makes small. ``page/columns.js`` reads it.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..analysis.best import tied_best
from ..analysis.fastest import axes_of, params_text
from ..analysis.run_quality import dataset_provenance
from ..comparing.history import BESTS, COPY, History, bests_of, read_history
from ..core.merit import merit_of
from ..core.schema import GROUP, PARAMS, Status
from ..model.stage import DEVICE_MODEL_SCHEMA
from ..storage.dataset import partitions, read_cells
from ..storage.store import read_table

# A figure is shown with as many significant digits, and so it is kept: rounded once, as decimal.
DIGITS = 4
# A sample is kept as the logarithm of its share of the cell's median, in steps of a ten-thousandth.
SAMPLE_STEP = 1e-4
_NO_EXPONENT = -(2**15)
# Level 9 takes twice as long and saves a hundredth.
_LEVEL = 6


class Block:
    """Collects columns of equally many rows; `packed` is what the page gets."""

    def __init__(self) -> None:
        self._columns: list[dict[str, Any]] = []
        self._arrays: list[npt.NDArray[Any]] = []

    def add_codes(self, name: str, values: pd.Series) -> None:
        """Texts or whole numbers, with nulls: each different one once, and which it is per row."""
        codes, distinct = pd.factorize(values, sort=True)
        listed: list[Any] = [v if isinstance(v, str) else int(v) for v in distinct.tolist()]
        if (codes < 0).any():
            codes = np.where(codes < 0, len(listed), codes)
            listed.append(None)
        self._columns.append({"name": name, "kind": "codes", "values": listed})
        if len(listed) > 1:
            self._keep(codes.astype(np.min_scalar_type(len(listed) - 1)))

    def add_decimals(self, name: str, values: npt.ArrayLike) -> None:
        """Numbers rounded to DIGITS significant digits, each as mantissa and power of ten."""
        mantissas, exponents = decimals(np.asarray(values, dtype=np.float64))
        self._columns.append({"name": name, "kind": "decimal"})
        self._keep(mantissas)
        self._keep(exponents)

    def add_exact(self, name: str, values: npt.NDArray[Any]) -> None:
        """Numbers in the type that they have, all bits of them."""
        self._columns.append({"name": name, "kind": "exact"})
        self._keep(values)

    def add_lengths(self, name: str, lists: pd.Series) -> None:
        """How many of the next column's values belong to each row."""
        self._columns.append({"name": name, "kind": "lengths"})
        self._keep(narrowed(lists.map(len).to_numpy(np.int64)))

    def _keep(self, array: npt.NDArray[Any]) -> None:
        self._columns[-1].setdefault("arrays", []).append([array.dtype.str[1:], len(array)])
        self._arrays.append(array)

    def packed(self, rows: int) -> bytes:
        """The block, compressed; the same bytes for the same columns."""
        header = json.dumps({"rows": rows, "columns": self._columns}, separators=(",", ":"))
        text = header.encode()
        parts = [len(text).to_bytes(4, "little"), text, *map(_byte_planes, self._arrays)]
        return gzip.compress(b"".join(parts), compresslevel=_LEVEL, mtime=0)


def decimals(
    values: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
    """Mantissas of DIGITS digits and powers of ten: 0.98766 is 9877 and -4; else _NO_EXPONENT."""
    known = np.isfinite(values) & (values != 0.0)
    # Zero is 0 and 0.
    exponents = np.where(np.isfinite(values), 0, _NO_EXPONENT)
    mantissas = np.zeros(len(values))
    sizes = np.abs(values[known])
    powers = np.floor(np.log10(sizes)).astype(np.int64) - (DIGITS - 1)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        scaled = values[known] / 10.0**powers
        rounded = np.rint(scaled)
        away = np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5)
    # Where a product may be rounded the wrong way Python rounds the number that it is.
    least, most = 10 ** (DIGITS - 1), 10**DIGITS
    doubtful = ~((away > 1e-6) & (np.abs(rounded) >= least) & (np.abs(rounded) < most))
    for i in np.flatnonzero(doubtful).tolist():
        digits, _, power = f"{values[known][i]:.{DIGITS - 1}e}".partition("e")
        rounded[i], powers[i] = int(digits.replace(".", "")), int(power) - (DIGITS - 1)
    mantissas[known], exponents[known] = rounded, powers
    return mantissas.astype(np.int16), exponents.astype(np.int16)


def sample_steps(
    samples: npt.NDArray[np.float64], medians: npt.NDArray[np.float64]
) -> npt.NDArray[np.int16]:
    """Each sample as SAMPLE_STEP's multiple that its logarithm lies above that of its median."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.round(np.log(samples / medians) / SAMPLE_STEP)
    most = np.iinfo(np.int16).max
    return np.nan_to_num(steps, nan=0.0).clip(-most, most).astype(np.int16)


def narrowed(values: npt.NDArray[np.int64]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Counts in the smallest type that holds them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def _byte_planes(array: npt.NDArray[Any]) -> bytes:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(-1, little.dtype.itemsize).T.tobytes()


# What cells are compared by, all bits of it.
EXACT = ("median_s", "own_low_s", "own_high_s")
# Shown, and compared with nothing.
DECIMAL = (
    *("bandwidth_low_gbs", "bandwidth_high_gbs", "median_low_s", "median_high_s", "coverage"),
    *("within_half_width", "between_spread", "memcpy_gbs", "vs_memcpy", "working_set_over_cache"),
)
CODED = (
    *("status", "message", "threads_per_block", "blocks", "tiles", "multiprocessors"),
    *("resident_blocks", "registers", "bytes_read", "bytes_written", "launches_per_sample"),
    *("verified_words", "wrong_words", "device_uuid", "backend", "measured_at"),
)
MODEL = "#predicted_gbs"
# The order of a group's cells that have the same median.
ORDER = "#order"


@dataclass(frozen=True)
class Unfinished:
    """How much of a run that still goes on is in; `cells` planned is an estimate if `about`."""

    shards: int
    planned_shards: int
    planned_cells: int
    about: bool


@dataclass(frozen=True)
class Source:
    """A data set, its name, the model's predictions, the history; `progress` if it goes on."""

    dataset: Path
    name: str
    device: Path | None = None
    history: Path | None = None
    progress: Unfinished | None = None


@dataclass
class Payload:
    """The index, in plain values, and the blocks that it names, in base64."""

    index: dict[str, Any]
    blocks: dict[str, str] = field(default_factory=dict)


def payload(source: Source, prefix: str = "a") -> Payload:
    """All that the page shows of a data set; the names of its blocks begin with `prefix`.

    One kernel and type is in memory at a time. Raises BadParquetError for what is damaged.
    """
    made = Payload(
        {
            "name": source.name,
            "progress": None if source.progress is None else vars(source.progress),
            "sample_step": SAMPLE_STEP,
            "parts": [],
            "kernels": {},
            "codes": version_facts(dataset_provenance(source.dataset)),
            "group": list(GROUP),
            "history": over_runs(read_history(source.history)) if source.history else None,
        }
    )
    predicted = None
    if source.device is not None:
        predicted = read_table(source.device, DEVICE_MODEL_SCHEMA).to_pandas()
    for number, where in enumerate(partitions(source.dataset)):
        cells = read_cells(source.dataset, where)
        axes = axes_of(cells)
        # By group and then by launch parameters: gzip makes alike neighbours small.
        cells = cells.sort_values([*GROUP, *axes, "cell_key"], ignore_index=True)
        cells[MODEL] = _predicted(cells, predicted)
        blocks = {"figures": f"{prefix}{number}", "samples": f"{prefix}{number}s"}
        made.blocks[blocks["figures"]] = _text(_figures(cells, axes).packed(len(cells)))
        made.blocks[blocks["samples"]] = _text(_samples(cells).packed(len(cells)))
        part = {**where, "axes": axes, "rows": len(cells), "groups": _groups(cells, axes), **blocks}
        part["merit"] = asdict(merit_of(cells))
        made.index["parts"].append(part)
    made.index["cells"] = sum(part["rows"] for part in made.index["parts"])
    return made


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _groups(cells: pd.DataFrame, axes: Sequence[str]) -> list[dict[str, Any]]:
    """Where each group's rows begin and end, and its fastest cell."""
    found = []
    needed = ["status", "cell_key", *EXACT, *axes]
    for key, group in cells[[*GROUP, *needed]].groupby(list(GROUP[2:]), sort=True, observed=True):
        names = dict(zip(GROUP[2:], key, strict=True))
        tied = tied_best(group)
        best = None
        if not tied.empty:
            top = tied.iloc[0]
            best = {"params": params_text(top, axes)}
        found.append(
            {
                **names,
                **{side: int(names[side]) for side in ("height", "width")},
                "from": int(group.index[0]),
                "to": int(group.index[-1]) + 1,
                "ok": int((group["status"] == Status.OK).sum()),
                "tied": len(tied),
                "best": best,
            }
        )
    return found


def _figures(cells: pd.DataFrame, axes: Sequence[str]) -> Block:
    block = Block()
    for name in (*axes, *CODED):
        column = cells[name]
        if isinstance(column.dtype, pd.DatetimeTZDtype):
            column = column.dt.strftime("%Y-%m-%d %H:%M:%S UTC")
        is_number = pd.api.types.is_numeric_dtype(column)
        block.add_codes(name, column.astype("Int64") if is_number else column)
    # The place by key among cells of the group that have the same median.
    same = cells.groupby([*GROUP, "median_s"], observed=True)["cell_key"]
    block.add_codes(ORDER, same.rank("first").sub(1).fillna(0).astype("Int64"))
    for name in EXACT:
        block.add_exact(name, cells[name].to_numpy("<f8", na_value=np.nan))
    for name in (*DECIMAL, MODEL):
        block.add_decimals(name, cells[name])
    if cells["work"].notna().any():
        block.add_exact("work", cells["work"].to_numpy("<f8", na_value=np.nan))
    for name in ("repeat_medians_s", "repeat_memcpy_gbs"):
        block.add_lengths(f"#{name}", cells[name])
        block.add_decimals(name, _flat(cells[name]))
    return block


def _samples(cells: pd.DataFrame) -> Block:
    block = Block()
    samples, repeats = cells["samples_s"], cells["repeat_samples"]
    medians = np.repeat(cells["median_s"].to_numpy(np.float64, na_value=np.nan), samples.map(len))
    block.add_lengths("#samples_s", samples)
    block.add_exact("samples_s", sample_steps(_flat(samples), medians))
    block.add_lengths("#repeat_samples", repeats)
    block.add_exact("repeat_samples", narrowed(_flat(repeats).astype(np.int64)))
    return block


def _flat(lists: pd.Series) -> Any:
    return np.fromiter(chain.from_iterable(lists), dtype=np.float64)


def _predicted(cells: pd.DataFrame, model: pd.DataFrame | None) -> pd.Series:
    """Bandwidth that the device's model predicts for each cell, GB/s; else not a number."""
    if model is None or model.empty:
        return pd.Series(np.nan, index=cells.index)
    # A left join keeps the order of the cells.
    on = [*GROUP, "cell_key"]
    return cells[on].merge(model[[*on, "predicted_gbs"]], on=on, how="left")["predicted_gbs"]


def version_facts(provenance: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Facts of each version, by ``kernel/dtype`` and the version's name (`core.space.Version`).

    ``facts`` are the different ones, each a list of lines; ``versions`` says which of them belongs
    to which version. Where shards differ the first one counts: they are of one kernel and device.
    """
    found: dict[str, dict[str, Any]] = {}
    for shard in provenance:
        name = f"{Path(shard['params']['folder']).name}/{shard['params']['dtype']}"
        facts, versions = found.setdefault(name, {"facts": [], "versions": {}}).values()
        code = shard["machine_code"] or {}
        variants = code.get("variants", {})
        for version in sorted(
            {*shard["builds"], *variants, *shard["build_failures"]} - {*versions}
        ):
            lines = []
            if version in shard["builds"]:
                lines.append(f"Options: {shard['builds'][version] or 'none'}")
            entries = variants.get(version, {}).get("entries") or []
            lines += map(_entry_line, entries)
            lines += [f"Architecture: {code['arch']}"] if entries else []
            failure = variants.get(version, {}).get("failure")
            lines += [f"Check of the machine code: {failure}"] if failure else []
            if lines not in facts:
                facts.append(lines)
            versions[version] = facts.index(lines)
    return found


def _entry_line(entry: Mapping[str, Any]) -> str:
    spilled = entry["spill_loads"] + entry["spill_stores"]
    accesses = ", ".join(
        f"{access['count']} {access['space']} {access['kind']}"
        f"{'s' if access['count'] > 1 else ''} of {access['width']} bytes"
        f"{' in a loop' if access['in_loop'] else ''}"
        for access in entry["accesses"]
    )
    spills = f"{spilled} spills" if spilled else "no spills"
    return f"{entry['entry']}: {entry['registers']} registers, {spills}; {accesses or 'no access'}"


def over_runs(found: History) -> dict[str, Any]:
    """Plain values: the runs by their number, and the groups by their names (see `group_key`)."""
    runs = found.rows.drop_duplicates("number").sort_values("number")
    changes: dict[str, list[Mapping[str, Any]]] = {}
    for row in found.changes.to_dict("records"):
        changes.setdefault(group_key(row), []).append(row)
    return {
        "why": found.why,
        "runs": [
            {"number": row["number"], "run": row["run"], "day": f"{row['measured_at']:%Y-%m-%d}"}
            for row in runs[["number", "run", "measured_at"]].to_dict("records")
        ],
        "groups": {
            (key := group_key(rows.iloc[0].to_dict())): _line(rows, changes.get(key, ()))
            for _, rows in found.rows.groupby(list(GROUP), observed=True)
        },
    }


def group_key(row: Mapping[str, Any]) -> str:
    """The names of a group as one text; ``page/runs.js`` makes the same of what is chosen."""
    return "\n".join(str(row[name]) for name in GROUP)


def _line(rows: pd.DataFrame, changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A group's bests in the order of runs, and its change points as shares."""
    group = rows.sort_values("number")
    quantity, (best, low, high) = bests_of(group)
    columns = {"best": best, "copy": COPY, "low": low, "high": high}
    return {
        "unit": BESTS[quantity],
        "number": group["number"].tolist(),
        PARAMS: group[PARAMS].tolist(),
        **{name: [_rounded(value) for value in group[column]] for name, column in columns.items()},
        "changes": [
            {
                "number": row["number"],
                "run": row["run"],
                "of": "copy" if row["quantity"] == COPY else "best",
                "change": _rounded(row["change"]),
                "cause": row["cause"],
                "differences": list(row["differences"]),
            }
            for row in changes
            if row["quantity"] in (quantity, COPY)
        ],
    }


def _rounded(value: float) -> float | None:
    return None if pd.isna(value) else float(f"{value:.5g}")
