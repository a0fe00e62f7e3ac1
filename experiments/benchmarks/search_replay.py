"""How many cells and samples a search needs, replayed on recorded samples, beside other ways.

    export PYTHONPATH=workflow/scripts:kernels OPENBLAS_NUM_THREADS=1
    .venv/bin/python experiments/benchmarks/search_replay.py reports/reference/nvidia-h200 \
        [--kernel-tuner PYTHON] --out reports/reference/search/nvidia-h200.json

Needs no device. What a search asks for it is given from the samples that were recorded of that
cell, in an order drawn by the seed; even seeds draw from one repeat, odd ones from the other, and
where a cell has too few they begin again. A hit is a cell within the tolerance of the best recorded
median (over all repeats), or whose interval meets the best one's. A search is wrong when it ends
with another cell. Shares of samples are of the fewest that a repeat of a sweep without a search
takes. A record that was a race itself has few samples of slow cells.

Other ways get recorded medians instead, without noise: the aligned blocks of a sensible grid
in random order; and strategies of Kernel Tuner in its own simulation mode
(`kernel_tuner_replay.py`), where an interpreter that has Kernel Tuner is named.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.paths import KERNELS
from gpushmoo.core.schema import GROUP, Status, is_axis
from gpushmoo.core.space import Cell, Problem
from gpushmoo.exporting.choices import ExportGroup
from gpushmoo.extras.foreign_formats.results import cache_text
from gpushmoo.search.guided import planner_for
from gpushmoo.search.planner import Candidate, SearchMode, SearchSettings
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import unpacked
from gpushmoo.storage.wholefile import write_json
from gpushmoo.workloads.contract import Workload
from gpushmoo.workloads.loader import load_kernel

Floats = npt.NDArray[np.float64]

TWO_D = ("copy2d_coalesced", "surf2d_memset", "tex2d_sum")
OTHERS = ("block_eq_partition", "dot_streamed", "dot_resident")
MIN_CELLS = {**dict.fromkeys(TWO_D, 500), "block_eq_partition": 100}
# As the record's own sweeps, of two repeats each (config/full.yaml).
RULE, HALF_WIDTH = (6, 16), 0.01 * 2**0.5
GRID_X = (4, 8, 16, 32, 64)
WARP = 32
GUIDED = "guided"
# Share of the cells that a peer may measure.
PEER_SHARE = 0.1
STRATEGIES = ("diff_evo", "bayes_opt")


@dataclass(frozen=True)
class Recorded:
    """A group of the record: `samples[cell][repeat]`, medians over all repeats, what is a hit.

    `rows` are its cells in the data set, in the order of the others.
    """

    key: tuple[Any, ...]
    rows: pd.DataFrame
    candidates: list[Candidate]
    samples: list[list[Floats]]
    median_s: Floats
    hits: npt.NDArray[np.bool_]
    swept_samples: float

    @property
    def name(self) -> str:
        """``copy2d_coalesced float element 1024x1024 warm``."""
        kernel, dtype, variant, height, width, state = self.key[:6]
        return f"{kernel} {dtype} {variant} {height}x{width} {state}"


def recorded(folder: Path, tolerance: float) -> Iterator[Recorded]:
    """The groups of the record that are worth a search."""
    with tempfile.TemporaryDirectory() as scratch:
        dataset = Path(scratch) / "dataset"
        # Not by folders: one kernel may have several, each from another sweep.
        aggregate(sorted(unpacked(folder).rglob("*.parquet")), dataset)
        for kernel in (*TWO_D, *OTHERS):
            cells = read_cells(dataset, {"kernel": kernel})
            workload = load_kernel(KERNELS / kernel).workload
            ok = cells[cells["status"] == Status.OK]
            for key, rows in ok.groupby(list(GROUP), observed=True):
                if len(rows) >= MIN_CELLS.get(kernel, 200):
                    yield group_of(key, rows, workload, tolerance)


def group_of(
    key: tuple[Any, ...], rows: pd.DataFrame, workload: Workload, tolerance: float
) -> Recorded:
    """A group as the searches see it."""
    medians = rows["median_s"].to_numpy()
    best = int(np.argmin(medians))
    meets = rows["group_low_s"].to_numpy() <= rows["group_high_s"].to_numpy()[best]
    return Recorded(
        key=key,
        rows=rows,
        candidates=[candidate_of(row, workload) for row in rows.to_dict("records")],
        samples=[
            np.split(np.asarray(all_s), np.cumsum(counts)[:-1])
            for all_s, counts in zip(rows["samples_s"], rows["repeat_samples"], strict=True)
        ],
        median_s=medians,
        hits=(medians <= (1.0 + tolerance) * medians[best]) | meets,
        swept_samples=float(RULE[0] * len(rows)),
    )


def candidate_of(row: dict[str, Any], workload: Workload) -> Candidate:
    """What a search knows of a recorded cell."""
    params = tuple(
        sorted((n, int(v)) for n, v in row.items() if is_axis(str(n)) and not pd.isna(v))
    )
    problem = Problem(int(row["height"]), int(row["width"]))
    cell = Cell(row["kernel"], row["dtype"], row["variant"], problem, params, row["cache_state"])
    resident = row["resident_blocks"]
    return Candidate(
        params=params,
        block=workload.launch(cell).block,
        blocks=int(row["blocks"]),
        height=problem.height,
        width=problem.width,
        element_bytes=DTYPES[row["dtype"]].itemsize,
        multiprocessors=int(row["multiprocessors"]),
        resident_blocks=None if pd.isna(resident) else int(resident),
    )


@dataclass(frozen=True)
class Run:
    """One search: after how many cells the first hit came (None: never), and how it ended."""

    first: int | None
    cells: int
    samples: int
    wrong: bool
    seconds: float = 0.0


def replayed(group: Recorded, settings: SearchSettings, seed: int) -> Run:
    """Search the group with samples drawn by `seed`."""
    draw = np.random.default_rng([seed, 1])
    begun: dict[int, Floats] = {}
    taken: dict[int, int] = {}
    first = None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    planner = planner_for(group.candidates, settings, RULE, seed, HALF_WIDTH)
    while asks := planner.propose():
        for ask in asks:
            if ask.place not in begun:
                repeats = group.samples[ask.place]
                begun[ask.place] = draw.permutation(repeats[seed % len(repeats)])
                if first is None and group.hits[ask.place]:
                    first = len(begun)
            at = taken.get(ask.place, 0)
            taken[ask.place] = at + ask.samples
            samples = np.take(begun[ask.place], range(at, at + ask.samples), mode="wrap")
            planner.tell(ask.place, samples)
    verdict = planner.verdict()
    assert verdict.best is not None
    return Run(
        first=first,
        cells=verdict.measured,
        samples=verdict.samples,
        wrong=not group.hits[verdict.best],
        seconds=resource.getrusage(resource.RUSAGE_SELF).ru_utime - before,
    )


def ordered(group: Recorded, order: Sequence[int]) -> Run:
    """Whoever measures these cells in this order and takes the fastest."""
    hits = group.hits[list(order)]
    best = order[int(np.argmin(group.median_s[list(order)]))]
    first = int(np.argmax(hits)) + 1 if hits.any() else None
    return Run(first, len(order), 0, not group.hits[best])


def own_ways(groups: Sequence[Recorded]) -> dict[str, Callable[[Recorded, int], Run | None]]:
    """Every way that needs no other program, by name: a run for a group and seed."""

    def grid(group: Recorded, seed: int) -> Run | None:
        """The blocks of a sensible grid: few widths, whole warps."""
        shapes = [(dict(c.params).get("block_x"), c.threads) for c in group.candidates]
        places = [i for i, (x, n) in enumerate(shapes) if x in GRID_X and n % WARP == 0]
        order = np.random.default_rng((seed, 4)).permutation(places).tolist()
        return ordered(group, order) if group.key[0] in TWO_D and places else None

    return {
        GUIDED: lambda g, s: replayed(g, SearchSettings(SearchMode.GUIDED), s),
        "race": lambda g, s: replayed(g, SearchSettings(SearchMode.RACE), s),
        "aligned grid": grid,
    }


def peers(
    groups: Sequence[Recorded], python: Path, strategies: Sequence[str], seeds: int
) -> tuple[dict[str, Any], dict[tuple[str, str], list[Run]]]:
    """What Kernel Tuner's strategies do: its version and time, runs by group and strategy."""
    script = Path(__file__).with_name("kernel_tuner_replay.py")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:
        files = (Path(folder) / f"{number}.json" for number in range(len(groups)))
        spaces = [tuner_space(group, file) for group, file in zip(groups, files, strict=True)]
        asked = {"groups": [s for s in spaces if s], "strategies": list(strategies)}
        told = json.dumps(asked | {"seeds": list(range(seeds))})
        command = [str(python), str(script)]
        said = subprocess.check_output(command, input=told, encoding="utf-8", env=env)
    found = json.loads(said)
    by_name = {group.name: group for group in groups}
    runs = {
        (name, f"Kernel Tuner, {strategy}"): [ordered(by_name[name], order) for order in orders]
        for name, of_group in found["orders"].items()
        for strategy, orders in of_group.items()
    }
    about = {"version": found["version"], "processor_s": round(found["seconds"])}
    return about | {"seeds": seeds, "most_share": PEER_SHARE}, runs


def tuner_space(group: Recorded, file: Path) -> dict[str, Any] | None:
    """A group for `kernel_tuner_replay.py`, which finds its cells in the cache `file`.

    None where a rule of its axes cannot be stated.
    """
    params = [dict(c.params) for c in group.candidates]
    axes = {n: sorted({p[n] for p in params}) for n in sorted(params[0])}
    axes = {name: values for name, values in axes.items() if len(values) > 1}
    whole = int(np.prod([len(values) for values in axes.values()]))
    restrictions = []
    if len(params) < whole:
        if group.key[0] not in TWO_D:
            return None
        most = max(c.threads for c in group.candidates)
        restrictions = [f"block_x * block_y <= {most}"]
    key = dict(zip(GROUP, group.key, strict=True))
    file.write_text(cache_text(ExportGroup(key, group.rows, list(axes))), encoding="utf-8")
    cells = [[p[n] for n in axes] for p in params]
    told = {"name": group.name, "cache": str(file), "cells": cells, "restrictions": restrictions}
    return told | {"most": max(1, round(PEER_SHARE * len(params)))}


def finite(value: float) -> float | None:
    """Return a number for JSON, in which None means never."""
    return round(float(value), 4) if np.isfinite(value) else None


def middle_and_worst(values: Sequence[float]) -> list[float | None]:
    """Median and 95th percentile; observed values, so that a miss (infinite) counts as one."""
    return [finite(q) for q in np.quantile(np.asarray(values, float), (0.5, 0.95), method="higher")]


def told(runs: Sequence[tuple[Recorded, Run]]) -> dict[str, Any]:
    """What the runs of one way say together: medians, 95th percentiles and shares.

    ``first``: cells until the first hit, None: never; ``cells_share`` until the search ended.
    """
    firsts = [float("inf") if r.first is None else float(r.first) for _, r in runs]
    samples = [r.samples / g.swept_samples for g, r in runs]
    found: dict[str, Any] = {
        "runs": len(runs),
        "first": middle_and_worst(firsts),
        "cells_share": middle_and_worst([r.cells / len(g.candidates) for g, r in runs]),
        "wrong": finite(np.mean([r.wrong for _, r in runs])),
    }
    if any(samples):
        found["samples_share"] = middle_and_worst(samples)
        found["processor_s"] = middle_and_worst([r.seconds for _, r in runs])
    return found


def summary(groups: Sequence[Recorded], runs: dict[tuple[str, str], list[Run]]) -> dict[str, Any]:
    """By way: of all 2-D groups together, and of each kernel's others."""
    families = dict.fromkeys(str(group.key[0]) for group in groups)
    sets: dict[str, dict[str, list[Recorded]]] = {
        "together": {"2-D": [g for g in groups if g.key[0] in TWO_D]},
        "families": {f: [g for g in groups if g.key[0] == f] for f in families},
    }
    ways = list(dict.fromkeys(way for _, way in runs))
    return {
        part: {
            name: {
                way: told(pairs)
                for way in ways
                if (pairs := [(g, r) for g in members for r in runs.get((g.name, way), [])])
            }
            for name, members in named.items()
            if members
        }
        for part, named in sets.items()
    }


def main() -> None:
    """Replay and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path, help="a folder of recorded shards")
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--other-seeds", type=int, default=8, help="of all ways but 'guided'")
    parser.add_argument("--kernel-tuner", type=Path, help="a Python that has Kernel Tuner")
    parser.add_argument("--peer-seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="where the record goes, as JSON")
    given = parser.parse_args()
    tolerance = SearchSettings().tolerance
    groups = list(recorded(given.record, tolerance))
    runs: dict[tuple[str, str], list[Run]] = {}
    for name, way in own_ways(groups).items():
        for group in groups:
            seeds = given.seeds if name == GUIDED else given.other_seeds
            found = [way(group, seed) for seed in range(seeds)]
            runs[group.name, name] = [run for run in found if run is not None]
        print(f"{name}: done", file=sys.stderr)
    record: dict[str, Any] = {"seeds": given.seeds, "other_seeds": given.other_seeds}
    record |= {"tolerance": tolerance, "groups": len(groups)}
    record |= {"settings": asdict(SearchSettings(SearchMode.GUIDED))}
    record |= {"cores": os.cpu_count(), "numpy": np.__version__}
    if given.kernel_tuner is None or not given.kernel_tuner.exists():
        print("Kernel Tuner is left out: --kernel-tuner names no interpreter.", file=sys.stderr)
    else:
        about, theirs = peers(groups, given.kernel_tuner, STRATEGIES, given.peer_seeds)
        record["kernel_tuner"], runs = about, runs | theirs
    write_json(given.out, record | {"ways": summary(groups, runs)})


if __name__ == "__main__":
    main()
