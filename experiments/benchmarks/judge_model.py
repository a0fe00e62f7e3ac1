"""How well one model predicts a device's cells that were kept from it, beside other ways.

    python3 -m venv sk && sk/bin/pip install scikit-learn
    realpath .venv/lib/python3.*/site-packages > \
        "$(sk/bin/python -c 'import site; print(site.getsitepackages()[0])')/project.pth"
    export PYTHONPATH=workflow/scripts:kernels OPENBLAS_NUM_THREADS=1
    sk/bin/python experiments/benchmarks/judge_model.py --cells described.parquet --out judged.json

Needs no device, but scikit-learn, which is no part of the environment: hence one beside it.

The Parquet file has a row a cell, as `gpushmoo.analysis.device_model` describes it: what the model
sees of it, and `measured_s`. All ways learn from the same cells. What is kept from them and what
the bands are: `judge_holdouts.py`. The ways:

* ``model``: one set of parameters for all cells.
* ``shaken``: the same from other first values: what the training does not tell stays at these, and
  the project's were found with all cells in view.
* ``family``: the same form, fitted to each kernel alone.
* ``series``: the project's formulas that are fitted to each series alone.
* ``near``: between the measured cells of the same group (`judge_rivals.near`).
* ``forest``, ``boosting``: a random forest and gradient boosting on all that is known of a launch.
* ``stacked``: boosting on what the model leaves.

Errors are [cells that the way predicts, median, 95th percentile, largest |predicted/measured − 1|];
where a way has answers for some cells only, its errors are of these, and `model_there` has the
model's of the same cells.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import sklearn
from gpushmoo.analysis.device_model import DeviceFit, fit_device, training
from gpushmoo.analysis.device_model.parameters import FIRST
from gpushmoo.core.paths import ROOT
from gpushmoo.storage.wholefile import write_json
from gpushmoo.workloads.loader import load_kernel
from judge_holdouts import (
    NOTHING,
    Bools,
    Floats,
    bands,
    conformal_half_width,
    coverage,
    errors,
    hold_outs,
    regions,
    split,
)
from judge_rivals import GROUP, SEED, Learned, SeriesForms, Way, near

PROMISED = 0.9
L2_BYTES = 62914560
# Beside the axes of its kernels and what the model sees.
NEEDED = {
    *GROUP,
    *("blocks", "tiles", "units", "resident_per_unit"),
    *("bytes_read", "bytes_written", "measured_s"),
}


class Model(Protocol):
    """What is judged."""

    def fit(self, table: pd.DataFrame, mask: Bools) -> None:
        """Learn from the cells of the mask."""

    def seconds(self, table: pd.DataFrame) -> Floats:
        """Predicted seconds of each cell."""


class DeviceModel:
    """The project's model of a device."""

    found: DeviceFit

    def __init__(self, first: Mapping[str, float] = FIRST) -> None:
        self.first = first

    def fit(self, table: pd.DataFrame, mask: Bools) -> None:
        self.found = fit_device(table, mask, self.first)

    def seconds(self, table: pd.DataFrame) -> Floats:
        return np.asarray(self.found.seconds(table), np.float64)


class Judge:
    """Asks all ways for what each hold-out keeps from them; `make` makes the model."""

    def __init__(self, cells: pd.DataFrame, cache_bytes: int, make: Callable[[], Model]) -> None:
        self.cells, self.make = cells, make
        self.training = np.asarray(training(cells, cells[axes_of(cells)]), bool)
        self.where = regions(cells, cache_bytes)
        self.hold_outs = hold_outs(cells, cache_bytes)
        self.measured = np.log(cells["measured_s"].to_numpy(np.float64))
        self.learned = Learned(cells)
        self.ways: dict[str, Way] = {
            "shaken": self._shaken,
            "family": self._by_family,
            "series": SeriesForms(),
            "near": near,
            "forest": self.learned.way(self.learned.forest),
            "boosting": self.learned.way(self.learned.boosting),
        }

    def judge(self) -> dict[str, Any]:
        """All errors by hold-out and way, and what bands of the model's residuals hold."""
        judged, residuals = {}, {}
        for name, kept in self.hold_outs.items():
            trained, wanted = split(self.training, kept)
            answers = self._model(trained, wanted)
            answers |= {n: way(self.cells, trained, wanted) for n, way in self.ways.items()}
            left = {n: self.measured[wanted] - a for n, a in answers.items()}
            judged[name] = {
                "trained": int(trained.sum()),
                "judged": int(wanted.sum()),
                "ways": {n: self._errors(r, left["model"], wanted) for n, r in left.items()},
            }
            residuals[name] = pd.Series(left["model"], index=np.flatnonzero(wanted))
            print(name, {n: w["all"] for n, w in judged[name]["ways"].items()}, flush=True)
        known = residuals.pop(NOTHING)
        found = bands(residuals, known, PROMISED)
        return {
            "hold_outs": judged,
            "bands": {
                "promised": PROMISED,
                "regions": found,
                "summary": coverage(found),
                "conformal_where_known": _where_known(known.to_numpy()),
            },
        }

    def _model(self, trained: Bools, wanted: Bools) -> dict[str, Floats]:
        """The model's own answers, and those with what boosting makes of its residuals."""
        model = self.make()
        model.fit(self.cells, trained)
        said = np.log(model.seconds(self.cells))
        more = self.learned.learn(self.learned.boosting(), self.measured - said, trained, wanted)
        return {"model": said[wanted], "stacked": said[wanted] + more}

    def _shaken(self, cells: pd.DataFrame, trained: Bools, wanted: Bools) -> Floats:
        """The model from first values that say little: each wrong by up to a factor of two."""
        draw = np.random.default_rng(SEED)
        first = {name: v * float(np.exp(draw.uniform(-0.7, 0.7))) for name, v in FIRST.items()}
        model = DeviceModel(first)
        model.fit(cells, trained)
        return np.log(model.seconds(cells[wanted]))

    def _by_family(self, cells: pd.DataFrame, trained: Bools, wanted: Bools) -> Floats:
        out = np.full(len(cells), np.nan)
        for kernel in sorted(set(cells.loc[wanted, "kernel"])):
            mine = (cells["kernel"] == kernel).to_numpy()
            if (trained & mine).any():
                model = self.make()
                model.fit(cells, trained & mine)
                out[wanted & mine] = np.log(model.seconds(cells[wanted & mine]))
        return out[wanted]

    def _errors(self, residuals: Floats, of_model: Floats, wanted: Bools) -> dict[str, Any]:
        kernel, where = self.cells["kernel"].to_numpy(str)[wanted], self.where[wanted]
        return {
            "all": errors(residuals),
            "model_there": errors(np.where(np.isnan(residuals), np.nan, of_model)),
            **{
                what: {str(n): errors(residuals[of == n]) for n in np.unique(of)}
                for what, of in (("families", kernel), ("regions", where))
            },
        }


def axes_of(cells: pd.DataFrame) -> list[str]:
    """The launch parameters among the columns."""
    kernels = (load_kernel(ROOT / "kernels" / name) for name in sorted(set(cells["kernel"])))
    return sorted({axis for kernel in kernels for axis in kernel.workload.axes})


def _where_known(residuals: Floats) -> float:
    """Coverage of split conformal on one half of the residuals of known regions in the other."""
    shuffled = np.random.default_rng(SEED).permutation(residuals)
    half = len(shuffled) // 2
    width = conformal_half_width(shuffled[:half], PROMISED)
    return round(float((np.abs(shuffled[half:]) <= width).mean()), 4)


def main() -> None:
    """Judge the cells of a file and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=Path, required=True, help="described cells, Parquet")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--l2-bytes", type=int, default=L2_BYTES, help="of the device; an H200's")
    asked = parser.parse_args()
    cells = pd.read_parquet(asked.cells)
    if missing := sorted(NEEDED.difference(cells)):
        parser.error(f"--cells: '{asked.cells}' lacks {missing}; it needs {sorted(NEEDED)}.")
    judge = Judge(cells, asked.l2_bytes, DeviceModel)
    found = {
        "cells": len(judge.cells),
        "training": int(judge.training.sum()),
        "learned_from": judge.learned.names,
        "versions": {m.__name__: m.__version__ for m in (np, sklearn)},
        **judge.judge(),
    }
    write_json(asked.out, found)


if __name__ == "__main__":
    main()
