"""How well the model of a device predicts recordings that had no part in it.

    export PYTHONPATH=workflow/scripts:kernels OPENBLAS_NUM_THREADS=1
    python experiments/benchmarks/judge_unseen.py --trained described.parquet --out unseen.json \
        --unseen gallery=gallery.parquet documents=documents.parquet

Fits the model to a few cells of the first file and judges it by all cells of the others, which are
other devices of that name, other kernels or other sizes: `described_cells.py` makes these files.
Beside it other ways that learn from the same cells (`judge_model.py` says which), and, of
kernels that both have, what the first recording itself says of the same cells: how much two devices
and two days differ. And how good the cell is that a model names as the fastest of
each group of the first file: of the fitted model, and of one that was not fitted but knows figures
of micro-benchmarks (``--facts``, JSON: values by the names of `gpushmoo.analysis.machine`). Needs
no device, but the environment of `judge_model.py`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from gpushmoo.analysis.device_model import fit_device, training
from gpushmoo.analysis.device_model.describe import DeviceFacts
from gpushmoo.analysis.device_model.first import first_values
from gpushmoo.analysis.device_model.form import Floats, Launches, Model
from gpushmoo.core.schema import GROUP
from gpushmoo.storage.wholefile import write_json
from judge_holdouts import errors
from judge_model import axes_of
from judge_rivals import Learned, SeriesForms, near

# A group of fewer cells offers no choice.
LEAST_CHOICE = 10
NEAR = 0.05
BY = ["kernel", "dtype", "variant", "height", "cache_state"]


def main() -> None:
    """Judge and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trained", type=Path, required=True)
    parser.add_argument("--unseen", nargs="+", required=True, metavar="NAME=FILE")
    parser.add_argument("--facts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    cells = pd.read_parquet(options.trained)
    chosen = training(cells, cells[axes_of(cells)])
    fit = fit_device(cells, chosen)
    judged: dict[str, Any] = {}
    for named in options.unseen:
        name, _, file = named.partition("=")
        told = pd.read_parquet(file)
        left = np.log(told["measured_s"].to_numpy()) - np.log(fit.seconds(told))
        groups = told.groupby(BY, sort=True).indices
        judged[name] = {
            "kernels": {k: errors(left[(told["kernel"] == k).to_numpy()]) for k in _kernels(told)},
            "groups": [
                {**dict(zip(BY, map(_plain, key), strict=True)), "errors": errors(left[rows])}
                for key, rows in groups.items()
            ],
            "recorded_twice": _twice(cells, told),
            "ways": rivals(cells, chosen, told),
        }
    facts = json.loads(options.facts.read_text(encoding="utf-8"))
    row = cells.iloc[0]
    device = DeviceFacts(int(row["units"]), int(row["cache_bytes"]), float(row["clock_hz"]))
    before = Model(first_values(facts["values"], device)).seconds(Launches.of(cells))
    choices = {
        "fitted": named_losses(cells, fit.seconds(cells)),
        "before": named_losses(cells, before),
    }
    content = {"trained": int(chosen.sum()), "unseen": judged, "named": choices}
    write_json(options.out, content)


def rivals(cells: pd.DataFrame, chosen: Any, told: pd.DataFrame) -> dict[str, Any]:
    """Errors of other ways, which learn from the `chosen` of `cells`, in `told` by kernel."""
    both = pd.concat([cells, told], ignore_index=True)
    wanted = np.arange(len(both)) >= len(cells)
    trained = np.concatenate([np.asarray(chosen, bool), np.zeros(len(told), bool)])
    learned = Learned(both)
    ways = {
        "series": SeriesForms(),
        "near": near,
        "forest": learned.way(learned.forest),
        "boosting": learned.way(learned.boosting),
    }
    measured, kernel = np.log(told["measured_s"].to_numpy()), told["kernel"].to_numpy(str)
    left = {name: measured - way(both, trained, wanted) for name, way in ways.items()}
    return {
        name: {"all": errors(off)} | {k: errors(off[kernel == k]) for k in _kernels(told)}
        for name, off in left.items()
    }


def named_losses(cells: pd.DataFrame, predicted: Floats) -> dict[str, Any]:
    """What the cell costs that a prediction names as the fastest of its group, over the fastest.

    By kernel and over all groups: [groups, share of them within 5 %, median, largest loss].
    """
    told = cells.assign(predicted=predicted)
    losses: dict[str, list[float]] = {}
    for key, group in told.groupby(list(GROUP), sort=True, observed=True):
        if len(group) >= LEAST_CHOICE:
            named = group.loc[group["predicted"].idxmin(), "measured_s"]
            loss = float(named / group["measured_s"].min() - 1)
            losses.setdefault(str(key[0]), []).append(loss)
    losses["all"] = [loss for mine in list(losses.values()) for loss in mine]
    return {
        kernel: [
            len(mine),
            round(float(np.mean(np.array(mine) <= NEAR)), 4),
            round(float(np.median(mine)), 4),
            round(max(mine), 4),
        ]
        for kernel, mine in losses.items()
    }


def _kernels(cells: pd.DataFrame) -> list[str]:
    return sorted(set(cells["kernel"]))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _twice(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, Any]:
    """Differences of the same cells in both, by kernel; a cell's key says what it is."""
    both = first.merge(second, on="cell_key", suffixes=("", "_again"))
    differ = np.log(both["measured_s_again"] / both["measured_s"]).to_numpy()
    return {k: errors(differ[(both["kernel"] == k).to_numpy()]) for k in _kernels(both)}


if __name__ == "__main__":
    main()
