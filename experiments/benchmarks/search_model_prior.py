"""Whether the guided search gains from what the model of a device predicts; replayed, as others.

    export PYTHONPATH=workflow/scripts:kernels OPENBLAS_NUM_THREADS=1
    .venv/bin/python experiments/benchmarks/search_model_prior.py reports/reference/nvidia-h200 \
        --cells described.parquet --facts reports/reference/nvidia-h200-model/facts.json \
        --out reports/reference/nvidia-h200-model/search-prior.json

Needs no device; `described_cells.py` makes the cells' file of the same record. `search_replay.py`
says how a search is replayed and what is counted. The ways differ in the priors that the search
begins with:

* ``none``, and ``recorded``: those of another group of the record, of the same kernel;
* ``before``: predicted with the first values of the parameters and figures of micro-benchmarks;
* ``others``: predicted by a model that is fitted to a few cells of all other kernels. Kernels with
  the same first word in their names count as one, and none of their cells is fitted to.
* ``before, shaken`` and ``others, shaken``: the same from other first values, since those of the
  project were found with all cells of an H200 in view, as was the form itself. In the first of
  the two, what a micro-benchmark measured stays.

All ways have the same seeds.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from gpushmoo.analysis.device_model import fit_device, training
from gpushmoo.analysis.device_model.describe import DeviceFacts
from gpushmoo.analysis.device_model.first import first_values
from gpushmoo.analysis.device_model.form import COLUMNS, Floats, Launches, Model
from gpushmoo.analysis.device_model.parameters import FIRST, PARAMETERS
from gpushmoo.core.schema import GROUP, is_axis
from gpushmoo.search.planner import Prior, SearchMode, SearchSettings
from gpushmoo.storage.wholefile import write_json
from search_replay import TWO_D, Recorded, Run, recorded, replayed, summary, table

SEARCHED = (*TWO_D, "block_eq_partition")
# First values are off by a factor of at most two either way.
SHAKEN = 0.7
# So many models are fitted from shaken first values; seeds take turns.
DRAWS = 4

Way = Callable[[Recorded, int], list[Prior] | None]


class Predictions:
    """What models predict of a group's cells, none of which was fitted to the group's kernel."""

    def __init__(self, cells: pd.DataFrame, facts: Mapping[str, float]) -> None:
        axes = [n for n in cells if is_axis(n) and n not in (*COLUMNS, "measured_s")]
        self.cells, self.facts = cells, facts
        self.chosen = training(cells, cells[axes])
        self.family = cells["kernel"].astype(str).map(family_of)
        rows = cells.iloc[0]
        self.device = DeviceFacts(
            int(rows["units"]), int(rows["cache_bytes"]), float(rows["clock_hz"])
        )
        self.groups = cells.groupby(list(GROUP), observed=True).indices
        self.params = [
            tuple(sorted((n, int(v)) for n, v in zip(axes, row, strict=True) if not pd.isna(v)))
            for row in cells[axes].itertuples(index=False)
        ]
        # One fit takes long, and many searches ask for it.
        self.before = cache(self._before)
        self.others = cache(self._others)

    def priors(self, group: Recorded, model: Model) -> list[Prior]:
        """Of all candidates of the group."""
        rows = self.groups[group.key]
        seconds = model.seconds(Launches.of(self.cells.iloc[rows]))
        told = {self.params[row]: float(s) for row, s in zip(rows, seconds, strict=True)}
        predicted: Floats = np.array([told[c.params] for c in group.candidates])
        slower = predicted / predicted.min()
        return [Prior(c.params, float(s)) for c, s in zip(group.candidates, slower, strict=True)]

    def _before(self, draw: int | None) -> Model:
        values = first_values(self.facts, self.device)
        measured = {n for n, m in PARAMETERS.items() if m.fact in self.facts} | {"dram_latency"}
        return Model({n: v if n in measured else shaken(draw)[n] for n, v in values.items()})

    def _others(self, family: str, draw: int | None) -> Model:
        trained = self.chosen & (self.family != family).to_numpy()
        return fit_device(self.cells, trained, shaken(draw)).model


@cache
def shaken(draw: int | None) -> dict[str, float]:
    """The first values; each times a factor of its own where there is a draw."""
    if draw is None:
        return dict(FIRST)
    factors = np.random.default_rng([draw, 5])
    return {n: v * float(np.exp(factors.uniform(-SHAKEN, SHAKEN))) for n, v in FIRST.items()}


def family_of(kernel: str) -> str:
    """``copy2d`` of copy2d_coalesced and copy2d_document."""
    return kernel.partition("_")[0]


def ways(groups: list[Recorded], predicted: Predictions) -> dict[str, Way]:
    """By name: the priors for a group and seed; None where there are none."""

    def elsewhere(group: Recorded, seed: int) -> list[Prior] | None:
        others = group.relatives(groups)
        draw = np.random.default_rng([seed, 2])
        return others[int(draw.integers(len(others)))].priors if others else None

    def before(draws: bool) -> Way:
        return lambda g, s: predicted.priors(g, predicted.before(s if draws else None))

    def others(draws: bool) -> Way:
        return lambda g, s: predicted.priors(
            g, predicted.others(family_of(str(g.key[0])), s % DRAWS if draws else None)
        )

    return {
        "none": lambda g, s: [],
        "before": before(False),
        "others": others(False),
        "others, shaken": others(True),
        "before, shaken": before(True),
        "recorded": elsewhere,
    }


def main() -> None:
    """Replay, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path, help="a folder of recorded shards")
    parser.add_argument("--cells", type=Path, required=True, help="the same cells, described")
    parser.add_argument("--facts", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--groups", default="", help="a regular expression of groups' names")
    parser.add_argument("--ways", default="", help="a regular expression of ways' names")
    parser.add_argument("--out", type=Path, help="where the result goes, as JSON")
    given = parser.parse_args()
    settings = SearchSettings(SearchMode.GUIDED)
    every = [g for g in recorded(given.record, settings.tolerance) if g.key[0] in SEARCHED]
    groups = [g for g in every if re.search(given.groups, g.name)]
    facts = json.loads(given.facts.read_text(encoding="utf-8"))["values"]
    predicted = Predictions(pd.read_parquet(given.cells), facts)
    runs: dict[tuple[str, str], list[Run]] = {}
    for name, way in ways(every, predicted).items():
        if not re.fullmatch(given.ways or ".*", name):
            continue
        for group in groups:
            for seed in range(given.seeds):
                priors = way(group, seed)
                if priors is not None:
                    run = replayed(group, settings, seed, priors)
                    runs.setdefault((group.name, name), []).append(run)
        print(f"{name}: done", file=sys.stderr)
    found = summary(groups, runs)
    print("\n".join(table(found)))
    if given.out is not None:
        content: dict[str, Any] = {
            "seeds": given.seeds,
            "draws": DRAWS,
            "groups": len(groups),
            "settings": asdict(settings),
            "micro_benchmarks": sorted(facts),
            "ways": found,
        }
        write_json(given.out, content)


if __name__ == "__main__":
    main()
