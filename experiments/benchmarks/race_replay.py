"""Does a race find the cells that a sweep of all samples finds tied? Replays it on recorded ones.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/benchmarks/race_replay.py reports/reference/nvidia-h200 OUT.json

RECORD holds shards with two or more repeats, in which every cell has all samples. In the first
repeat of each group the samples are dealt in their order to a race; cells that it drops keep those
that they got, and no later repeat. The rest is done as after measuring. Needs no device.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import tied_best
from gpushmoo.core.median import median_intervals
from gpushmoo.core.schema import GROUP, Status
from gpushmoo.measuring.settings import StoppingRule
from gpushmoo.search.planner import RacePlanner, SearchSettings
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.packed import unpacked
from gpushmoo.storage.store import open_shard, write_parquet

# A shard's metadata and table.
Shard = tuple[dict[str, Any], pa.Table]
_GROUP = ["variant", "height", "width", "cache_state", "timing_mode"]


def rule_of(measure: Mapping[str, Any]) -> StoppingRule:
    """The stopping rule of one repeat in a job's parameters."""
    names = ("min_samples", "max_samples", "relative_half_width", "budget_s")
    return StoppingRule(*(measure[name] for name in names)).shared_among(measure["repeats"])


def samples_taken(shard: Shard) -> tuple[list[int], list[bool]]:
    """How many samples each cell of a first repeat gets in a race, and whether it is dropped."""
    metadata, table = shard
    rule = rule_of(metadata["params"]["measure"])
    cells = table.select([*_GROUP, "status", "samples_s"]).to_pandas()
    taken, dropped = np.zeros(len(cells), int), np.zeros(len(cells), bool)
    for _, group in cells[cells["status"] == Status.OK].groupby(_GROUP):
        samples = group["samples_s"].tolist()
        planner = RacePlanner(
            len(samples),
            SearchSettings("race"),
            (rule.min_samples, rule.max_samples, rule.relative_half_width),
        )
        while asks := planner.propose():
            for place, more in asks:
                begin = int(planner.taken[place])
                planner.tell(place, samples[place][begin : begin + more])
                if begin + more >= len(samples[place]):
                    planner.enough(place)
        rows = group.index.to_numpy()
        taken[rows] = planner.taken
        dropped[rows] = planner.taken < rule.min_samples
    return taken.tolist(), dropped.tolist()


def raced(shards: Sequence[Shard]) -> Iterator[Shard]:
    """The repeats of a shard, the first one first, as a race would have left them."""
    taken, dropped = samples_taken(shards[0])
    keys = shards[0][1].column("cell_key").to_pylist()
    lost = {key for key, is_dropped in zip(keys, dropped, strict=True) if is_dropped}
    for number, (metadata, table) in enumerate(shards):
        if number:
            kept = [key not in lost for key in table.column("cell_key").to_pylist()]
            yield metadata, table.filter(pa.array(kept))
        else:
            yield metadata, _shortened(table, taken)


def _shortened(table: pa.Table, taken: Sequence[int]) -> pa.Table:
    """The first samples of each cell, with what follows from them."""
    ok = [status == Status.OK for status in table.column("status").to_pylist()]
    columns: dict[str, list[Any]] = {n: table.column(n).to_pylist() for n in table.column_names}
    rows = np.flatnonzero(ok)
    lists = [columns["samples_s"][row][: taken[row]] for row in rows]
    found = median_intervals(np.concatenate(lists), np.array([len(x) for x in lists]))
    values = {
        "samples_s": lists,
        "sampled_at_s": [columns["sampled_at_s"][row][: taken[row]] for row in rows],
        "median_s": found.median,
        **dict.fromkeys(("median_low_s", "own_low_s"), found.low),
        **dict.fromkeys(("median_high_s", "own_high_s"), found.high),
        "coverage": found.coverage,
    }
    for name, of_rows in values.items():
        for row, value in zip(rows, of_rows, strict=True):
            columns[name][row] = value
    return pa.table(columns, schema=table.schema)


def tied_sets(files: Sequence[Path], scratch: Path) -> dict[tuple[Any, ...], pd.DataFrame]:
    """By group the tied cells of shards."""
    out = scratch / "dataset"
    aggregate(sorted(files), out)
    cells = read_cells(out)
    groups = cells.groupby(list(GROUP), observed=True)
    return {key: tied_best(group) for key, group in groups if len(group) > 1}


def compared(every: Mapping[Any, pd.DataFrame], race: Mapping[Any, pd.DataFrame]) -> dict[str, Any]:
    """How the tied sets of a race stand to those of all samples, over the groups."""
    pairs = [
        (set(every[k]["cell_key"]), set(race[k]["cell_key"]), k) for k in every if len(every[k])
    ]
    winners = [every[k]["cell_key"].iloc[0] == race[k]["cell_key"].iloc[0] for *_, k in pairs]
    return {
        "groups": len(pairs),
        "same_set": float(np.mean([a == b for a, b, _ in pairs])),
        "same_winner": float(np.mean(winners)),
        "winner_in_set": float(np.mean([race[k]["cell_key"].iloc[0] in a for a, _, k in pairs])),
        "lost": sum(len(a - b) for a, b, _ in pairs),
        "added": sum(len(b - a) for a, b, _ in pairs),
        "tied": sum(len(a) for a, _, _ in pairs),
    }


def main() -> None:
    """Replay, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    repeats: dict[tuple[str, ...], list[Path]] = {}
    for path in sorted(unpacked(given.record).rglob("*.parquet")):
        repeats.setdefault((*path.parts[-3:-1], path.name.split(".")[0]), []).append(path)
    samples, taken = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        files = []
        repeats = {shard: paths for shard, paths in repeats.items() if len(paths) > 1}
        for (sweep, dtype, _), paths in repeats.items():
            shards = [(s.metadata, s.table()) for s in map(open_shard, paths)]
            for path, before, (metadata, table) in zip(paths, shards, raced(shards), strict=True):
                files.append(Path(folder) / sweep / dtype / path.name)
                files[-1].parent.mkdir(parents=True, exist_ok=True)
                write_parquet(table, files[-1], metadata)
                samples += sum(map(len, filter(None, before[1].column("samples_s").to_pylist())))
                taken += sum(map(len, filter(None, table.column("samples_s").to_pylist())))
        all_files = [path for paths in repeats.values() for path in paths]
        every = tied_sets(all_files, Path(folder) / "every")
        found = compared(every, tied_sets(files, Path(folder) / "race"))
    found["samples_share"] = taken / samples
    text = json.dumps(found, indent=1)
    print(text)
    given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
