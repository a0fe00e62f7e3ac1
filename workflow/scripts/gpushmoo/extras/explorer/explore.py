"""Write one page with all cells of a run, which a browser opens without a network."""

from __future__ import annotations

import gzip
import json
import os
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...analysis.aggregate import OpenedSet, count_planned, opened
from ...analysis.best import tied_best
from ...analysis.fastest import axes_of, params_text
from ...analysis.run_quality import dataset_provenance
from ...comparing.run_history import BESTS, COPY, History, bests_of, read_history
from ...core.display import one_line
from ...core.errors import BadParquetError, ExplorerError, OpenedError
from ...core.metric import metric_of
from ...core.schema import GROUP, PARAMS, Status
from ...core.space import needs_device
from ...model.fit_stage import DEVICE_MODEL_SCHEMA
from ...storage.dataset import partitions, place_of_products, read_cells
from ...storage.room import output
from ...storage.store import read_table
from ...storage.wholefile import read_json, write_atomic

# Significant digits of a shown number. It is rounded once and stored as a decimal.
DIGITS = 4
# Samples are stored as logarithms of their share of the cell's median, in steps of this size.
SAMPLE_STEP = 1e-4
_NO_EXPONENT = -(2**15)
# Level 9 would take twice as long and save one percent.
_LEVEL = 6


class Block:
    """Columns with the same number of rows; the page receives the result of `packed`."""

    def __init__(self) -> None:
        self._columns: list[dict[str, Any]] = []
        self._arrays: list[npt.NDArray[Any]] = []

    def add_codes(self, name: str, values: pd.Series) -> None:
        """Add texts or whole numbers with nulls: the distinct values, and an index for each row."""
        codes, distinct = pd.factorize(values, sort=True)
        listed: list[Any] = [v if isinstance(v, str) else int(v) for v in distinct.tolist()]
        if (codes < 0).any():
            codes = np.where(codes < 0, len(listed), codes)
            listed.append(None)
        self._columns.append({"name": name, "kind": "codes", "values": listed})
        if len(listed) > 1:
            self._keep(codes.astype(np.min_scalar_type(len(listed) - 1)))

    def add_decimals(self, name: str, values: npt.ArrayLike) -> None:
        """Add numbers rounded to DIGITS significant digits, as mantissas and powers of ten."""
        mantissas, exponents = decimals(np.asarray(values, dtype=np.float64))
        self._columns.append({"name": name, "kind": "decimal"})
        self._keep(mantissas)
        self._keep(exponents)

    def add_exact(self, name: str, values: npt.NDArray[Any]) -> None:
        """Add numbers in their own type, with all bits."""
        self._columns.append({"name": name, "kind": "exact"})
        self._keep(values)

    def add_lengths(self, name: str, lists: pd.Series) -> None:
        """Add the number of values of the next column that belong to each row."""
        self._columns.append({"name": name, "kind": "lengths"})
        self._keep(narrowed(lists.map(len).to_numpy(np.int64)))

    def _keep(self, array: npt.NDArray[Any]) -> None:
        self._columns[-1].setdefault("arrays", []).append([array.dtype.str[1:], len(array)])
        self._arrays.append(array)

    def packed(self, rows: int) -> bytes:
        """Return the block, compressed; the same columns make the same bytes."""
        header = json.dumps({"rows": rows, "columns": self._columns}, separators=(",", ":"))
        text = header.encode()
        parts = [len(text).to_bytes(4, "little"), text, *map(_byte_planes, self._arrays)]
        return gzip.compress(b"".join(parts), compresslevel=_LEVEL, mtime=0)


def decimals(
    values: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
    """Return mantissas of DIGITS digits and powers of ten: 0.98766 becomes 9877 and -4.

    The power of ten of NaN and infinity is _NO_EXPONENT.
    """
    known = np.isfinite(values) & (values != 0.0)
    # Zero becomes 0 and 0.
    exponents = np.where(np.isfinite(values), 0, _NO_EXPONENT)
    mantissas = np.zeros(len(values))
    sizes = np.abs(values[known])
    powers = np.floor(np.log10(sizes)).astype(np.int64) - (DIGITS - 1)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        scaled = values[known] / 10.0**powers
        rounded = np.rint(scaled)
        away = np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5)
    # The product may be rounded in the wrong direction. Python rounds the exact number.
    least = 10 ** (DIGITS - 1)
    most = 10**DIGITS
    doubtful = ~((away > 1e-6) & (np.abs(rounded) >= least) & (np.abs(rounded) < most))
    for i in np.flatnonzero(doubtful).tolist():
        digits, _, power = f"{values[known][i]:.{DIGITS - 1}e}".partition("e")
        rounded[i] = int(digits.replace(".", ""))
        powers[i] = int(power) - (DIGITS - 1)
    mantissas[known], exponents[known] = rounded, powers
    return mantissas.astype(np.int16), exponents.astype(np.int16)


def sample_steps(
    samples: npt.NDArray[np.float64], medians: npt.NDArray[np.float64]
) -> npt.NDArray[np.int16]:
    """Return the log of each sample's share of its median, in multiples of SAMPLE_STEP."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.round(np.log(samples / medians) / SAMPLE_STEP)
    most = np.iinfo(np.int16).max
    return np.nan_to_num(steps, nan=0.0).clip(-most, most).astype(np.int16)


def narrowed(values: npt.NDArray[np.int64]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Convert counts to the smallest type that can represent them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def _byte_planes(array: npt.NDArray[Any]) -> bytes:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(-1, little.dtype.itemsize).T.tobytes()


# Columns by which cells are compared, stored with all bits.
EXACT = ("median_s", "group_low_s", "group_high_s")
# Columns that are shown but never compared.
DECIMAL = (
    "bandwidth_low_gbs",
    "bandwidth_high_gbs",
    "median_low_s",
    "median_high_s",
    "coverage",
    "sample_half_width",
    "repeat_rsd",
    "memcpy_gbs",
    "vs_memcpy",
    "working_set_over_cache",
)
CODED = (
    "status",
    "message",
    "threads_per_block",
    "blocks",
    "tiles",
    "multiprocessors",
    "resident_blocks",
    "registers",
    "bytes_read",
    "bytes_written",
    "launches_per_sample",
    "verified_words",
    "wrong_words",
    "device_uuid",
    "backend",
    "measured_at",
)
MODEL = "#predicted_gbs"
# Order of the cells of a group that have the same median.
ORDER = "#order"


@dataclass(frozen=True)
class Unfinished:
    """Progress of a run that is not finished; the planned `cells` are an estimate if `about`."""

    shards: int
    planned_shards: int
    planned_cells: int
    about: bool


@dataclass(frozen=True)
class Source:
    """A data set and its name, the predictions of its model, its history, and its progress.

    `facts` is the JSON of the run's report. The page opens on the first group of that report.
    """

    dataset: Path
    name: str
    device: Path | None = None
    history: Path | None = None
    progress: Unfinished | None = None
    facts: Path | None = None


@dataclass
class Payload:
    """The index, in plain values, and the blocks that it names, in base64."""

    index: dict[str, Any]
    blocks: dict[str, str] = field(default_factory=dict)


def payload(source: Source, prefix: str = "a") -> Payload:
    """Return all that the page shows of a data set; names of its blocks begin with `prefix`."""
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
            "first": first_of(source.facts) if source.facts else None,
        }
    )
    predicted = None
    if source.device is not None:
        predicted = read_table(source.device, DEVICE_MODEL_SCHEMA).to_pandas()
    for number, where in enumerate(partitions(source.dataset)):
        cells = read_cells(source.dataset, where)
        axes = axes_of(cells)
        # Sorted by group and then by launch parameters, neighbors are similar, which gzip
        # compresses best.
        cells = cells.sort_values([*GROUP, *axes, "cell_key"], ignore_index=True)
        cells[MODEL] = _predicted(cells, predicted)
        blocks = {"figures": f"{prefix}{number}", "samples": f"{prefix}{number}s"}
        made.blocks[blocks["figures"]] = _text(_figures(cells, axes).packed(len(cells)))
        made.blocks[blocks["samples"]] = _text(_samples(cells).packed(len(cells)))
        part = {**where, "axes": axes, "rows": len(cells), "groups": _groups(cells, axes), **blocks}
        part["merit"] = asdict(metric_of(cells))
        made.index["parts"].append(part)
    made.index["cells"] = sum(part["rows"] for part in made.index["parts"])
    return made


def first_of(facts: Path) -> dict[str, Any] | None:
    """Return the group of cells that is first on the first page of a run's report.

    The explorer opens on this group. The result maps the columns that identify a group, such as
    kernel, type and size, to their values. It is None if the report recommends no launch.

    Parameters
    ----------
    facts
        The report's facts, a JSON file.
    """
    first: dict[str, Any] | None = read_json(facts)["first_page"].get("first")
    return first


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _groups(cells: pd.DataFrame, axes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the first and last row of each group, and its fastest cell."""
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
    # Rank by key among the cells of the group that have the same median.
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
    """Return the bandwidth in GB/s that the model predicts for each cell; NaN if it does not."""
    if model is None or model.empty:
        return pd.Series(np.nan, index=cells.index)
    # A left join keeps the order of the cells.
    on = [*GROUP, "cell_key"]
    return cells[on].merge(model[[*on, "predicted_gbs"]], on=on, how="left")["predicted_gbs"]


def version_facts(provenance: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return facts of each version, by ``kernel/dtype`` and its name (`core.space.Version`).

    ``facts`` are the distinct ones, each a list of lines, and ``versions`` maps a version to an
    index of them. If shards differ, the first one counts: they are of one kernel and device.
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
    """Return plain values: the runs by their number, and the groups by their names.

    The names are those of `group_key`.
    """
    runs = found.rows.drop_duplicates("number").sort_values("number")
    return {
        "why": found.why,
        "runs": [
            {"number": row["number"], "run": row["run"], "day": f"{row['measured_at']:%Y-%m-%d}"}
            for row in runs[["number", "run", "measured_at"]].to_dict("records")
        ],
        "groups": {
            group_key(rows.iloc[0].to_dict()): _line(rows)
            for _, rows in found.rows.groupby(list(GROUP), observed=True)
        },
    }


def group_key(row: Mapping[str, Any]) -> str:
    """Return the names of a group as one text; ``page/runs.js`` makes the same text."""
    return "\n".join(str(row[name]) for name in GROUP)


def _line(rows: pd.DataFrame) -> dict[str, Any]:
    """Return a group's bests in the order of runs."""
    group = rows.sort_values("number")
    quantity, (best, low, high) = bests_of(group)
    columns = {"best": best, "copy": COPY, "low": low, "high": high}
    return {
        "unit": BESTS[quantity],
        "number": group["number"].tolist(),
        PARAMS: group[PARAMS].tolist(),
        **{name: [_rounded(value) for value in group[column]] for name, column in columns.items()},
    }


def _rounded(value: float) -> float | None:
    return None if pd.isna(value) else float(f"{value:.5g}")


PAGE_NAME = "explorer.html"


def explore(
    run: str | os.PathLike[str],
    second: str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
) -> Path:
    """Write one page on which you can explore the cells of a run in a browser, without a network.

    Parameters
    ----------
    run, second : path
        A run's folder, a data set, or a folder of shards; and another one to show beside it. If a
        run is not finished, the page shows its finished shards.
    out : path
        The page to write; by default ``explorer.html`` in the folder of the run or saved sweep, or
        in the current folder for recorded shards.

    Returns
    -------
    Path
        Path of the page.

    Raises
    ------
    ExplorerError
        If there is nothing to show, or `out` does not end in ``.html``. It is a ValueError with one
        sentence.
    """
    places = [Path(place).expanduser() for place in (run, second) if place is not None]
    target = place_of_products(places[0]) / PAGE_NAME if out is None else Path(out).expanduser()
    if target.suffix != ".html":
        raise ExplorerError(f"'{target}' must end in .html.")
    with output(target, ExplorerError), ExitStack() as stack:
        try:
            sources = [stack.enter_context(_opened(place)) for place in places]
            if len({source.name for source in sources}) < len(sources):
                sources = [replace(s, name=f"{s.name} ({n})") for n, s in enumerate(sources, 1)]
            write_page(sources, target)
        except (OpenedError, BadParquetError) as err:
            raise ExplorerError(str(err)) from err
    return target


def write_page(sources: Sequence[Source], out: Path) -> None:
    """Write the page of one data set, or two, to `out`."""
    shown = [payload(source, prefix) for source, prefix in zip(sources, "ab", strict=False)]
    write_atomic(out, page(shown, " and ".join(source.name for source in sources)))


def write_run_page(
    dataset: Path, device: Sequence[Path], history: Sequence[Path], facts: Path, run: str, out: Path
) -> None:
    """Write the page of a finished run: its data set, report, model and history, if any."""
    earlier = history[0].parent if history else None
    source = Source(dataset, run, next(iter(device), None), earlier, facts=facts)
    write_page([source], out)


def explore_compared(spec: Mapping[str, Any], out: Path) -> None:
    """Write the page of the first run of each side of a comparison."""
    explore(spec["a"][0], spec["b"][0], out=out)


@contextmanager
def _opened(place: Path) -> Iterator[Source]:
    """Open `place` as `aggregate.opened` does; raise OpenedError with one sentence."""
    with opened(place) as found:
        # A finished run also has the predictions of the device's model, and the history.
        device = place / "model" / "device.parquet"
        history = place / "history"
        facts = place / "report.json"
        yield Source(
            found.dataset,
            found.name,
            device if found.finished and device.exists() else None,
            history if found.finished and history.exists() else None,
            _progress(found),
            facts if found.finished and facts.exists() else None,
        )


def _progress(found: OpenedSet) -> Unfinished | None:
    """Count the cells so far; a cell counts once, as on the page, regardless of its repeats."""
    plan = found.plan
    if plan is None:
        return None
    plans = [planned for dtypes in plan.sweeps.values() for planned in dtypes.values()]
    about = any(needs_device(spec) for one in plans for spec in one.job.axes.values())
    cells = round(sum(one.planned_cells * one.parts for one in plans))
    return Unfinished(found.shards, count_planned(plan), cells, about)


PAGE = Path(__file__).resolve().parent / "page"
# Programs of others, unchanged: see VENDOR.toml there.
VENDOR = PAGE / "vendor"
_SLOT = "<!-- {} -->"


def page(payloads: Sequence[Payload], title: str) -> bytes:
    """Return the page of one data set, or two side by side; the same data make the same bytes."""
    blocks = {name: text for made in payloads for name, text in made.blocks.items()}
    slots = {
        "title": escape(one_line(title)),
        "style": f"<style>{_source('vendor/uPlot.min.css')}\n{_source('style.css')}</style>",
        "vendor": f"<script>{_source('vendor/uPlot.iife.min.js')}</script>",
        "imports": _import_map(),
        "index": _data("index", _json([made.index for made in payloads]), "application/json"),
        "blocks": "\n".join(_data(f"block-{n}", text, "text/plain") for n, text in blocks.items()),
    }
    text = _source("index.html")
    for name, filling in slots.items():
        text = text.replace(_SLOT.format(name), filling)
    return text.encode()


def modules() -> list[Path]:
    """Return the paths of the page's JavaScript modules by name, without the vendored ones."""
    return sorted(PAGE.glob("*.js"))


def _source(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _import_map() -> str:
    """Map module names to inline text, because a page from a file may import nothing else."""
    texts = {path.name: b64encode(path.read_bytes()).decode() for path in modules()}
    imports = {f"explorer/{n}": f"data:text/javascript;base64,{t}" for n, t in texts.items()}
    return f'<script type="importmap">{_json({"imports": imports})}</script>'


def _data(name: str, text: str, kind: str) -> str:
    return f'<script type="{kind}" id="{name}">{text}</script>'


def _json(value: object) -> str:
    # No text can then end the script that contains it.
    return json.dumps(value, separators=(",", ":"), sort_keys=True).replace("<", "\\u003c")
