"""Other ways to predict the cells that `judge_model.py` holds out, trained on the same cells.

Each way is called with all cells, which of them it may learn from and which it shall predict. It
answers log(seconds), shape (cells to predict,), NaN where it has no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import scipy
from gpushmoo.analysis.models.blocks import Blocks, fit_blocks
from gpushmoo.analysis.models.closed import ModelInputs, total_s
from gpushmoo.analysis.models.fit import fit_series
from gpushmoo.analysis.models.footprint import LAYOUTS, Known, footprint
from gpushmoo.core.paths import KERNELS
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import Workload
from gpushmoo.workloads.loader import load_kernel
from judge_holdouts import Bools, Floats
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

Way = Callable[[pd.DataFrame, Bools, Bools], Floats]

SEED = 0
PERSISTENT = "block_eq_partition"
SERIES = ["kernel", "dtype", "height", "width", "cache_state"]
GROUP = [*SERIES, "variant"]
NEIGHBOURS = 4
CATEGORIES = ("kernel", "dtype", "variant", "cache_state")
# What was measured, or is the same as what was; what a cell is called.
OUTCOMES = ("_s", "_gbs", "spread", "repeats", "samples", "cell_key")


@cache
def workload_of(kernel: str) -> Workload:
    """The workload of a kernel of the project."""
    return load_kernel(KERNELS / kernel).workload


def parts(
    cells: pd.DataFrame, by: Sequence[str], trained: Bools, wanted: Bools
) -> Iterator[tuple[dict[str, Any], Any, Any]]:
    """Of each part of `cells` its names, and the places of what is learned from and predicted.

    Parts where either is missing are left out.
    """
    for key, places in cells.groupby(list(by), observed=True).indices.items():
        learn, ask = places[trained[places]], places[wanted[places]]
        if len(learn) and len(ask):
            yield dict(zip(by, key, strict=True)), learn, ask


def near(cells: pd.DataFrame, trained: Bools, wanted: Bools) -> Floats:
    """From cells of the same group: a line over log2 of a single axis, else the neighbours' mean.

    Beyond its ends the line goes on level. Neighbours are the nearest in log2 of the axes.
    """
    known = np.log(cells["measured_s"].to_numpy(np.float64))
    out = np.full(len(cells), np.nan)
    for names, learn, ask in parts(cells, GROUP, trained, wanted):
        axes = sorted(workload_of(names["kernel"]).axes)
        # A launch parameter may be 0.
        at = np.log2(np.maximum(cells[axes].to_numpy(np.float64), 0.5))
        if len(axes) == 1:
            order = learn[np.argsort(at[learn, 0])]
            out[ask] = np.interp(at[ask, 0], at[order, 0], known[order])
        elif len(learn) >= NEIGHBOURS:
            tree = scipy.spatial.KDTree(at[learn])
            out[ask] = known[learn[tree.query(at[ask], NEIGHBOURS)[1]]].mean(axis=1)
    return out[wanted]


class SeriesForms:
    """The project's formulas of single series: `closed` for persistent blocks, `blocks` for shapes.

    A series whose training cells are too few for its formula has no answer, nor has a kernel that
    does not say which elements its threads take. Fits are kept: most hold-outs share them.
    """

    def __init__(self) -> None:
        self._kept: dict[bytes, Callable[[Any], Floats] | None] = {}
        self._known: Known = {}
        self._touched: dict[int, Any] = {}

    def __call__(self, cells: pd.DataFrame, trained: Bools, wanted: Bools) -> Floats:
        out = np.full(len(cells), np.nan)
        persistent = (cells["kernel"] == PERSISTENT).to_numpy()
        for by, of_kind, fit in (
            (GROUP, persistent, self._closed),
            (SERIES, ~persistent, self._blocks),
        ):
            for _, learn, ask in parts(cells, by, trained & of_kind, wanted & of_kind):
                key = learn.tobytes()
                if key not in self._kept:
                    self._kept[key] = fit(cells, learn)
                predict = self._kept[key]
                if predict is not None:
                    out[ask] = np.log(predict(ask))
        return out[wanted]

    def _closed(self, cells: pd.DataFrame, learn: Any) -> Callable[[Any], Floats] | None:
        seen = cells.iloc[learn].drop_duplicates("blocks").sort_values("blocks")
        first = seen.iloc[0]
        machine = ModelInputs(*(int(first[n]) for n in ("units", "resident_per_unit", "tiles")))
        blocks = cells["blocks"].to_numpy(np.int64)
        seconds = seen["measured_s"].to_numpy(np.float64)
        p = fit_series(seen["blocks"].to_numpy(np.int64), seconds, machine, 0.0, SEED).parameters
        return None if p is None else lambda ask: total_s(blocks[ask], machine, p)

    def _blocks(self, cells: pd.DataFrame, learn: Any) -> Callable[[Any], Floats] | None:
        seen = self._shapes(cells, learn)
        if seen is None:
            return None
        fit = fit_blocks(seen, cells["measured_s"].to_numpy(np.float64)[learn], 0.0, SEED)
        best = fit.best
        if best is None:
            return None
        values = fit.hypotheses[best].values

        def predict(ask: Any) -> Floats:
            asked = self._shapes(cells, ask)
            assert asked is not None
            return asked.total_s(values, best)

        return predict

    def _shapes(self, cells: pd.DataFrame, places: Any) -> Blocks | None:
        touched = [self._footprint(cells, int(i)) for i in places]
        if None in touched:
            return None
        warps = np.array([t.warps for t in touched])
        rows = cells.iloc[places]
        return Blocks(
            units=int(rows["units"].iloc[0]),
            blocks=rows["blocks"].to_numpy(np.int64),
            threads=np.array([t.threads for t in touched]),
            warps=warps,
            resident=rows["resident_per_unit"].to_numpy(np.int64),
            requests={
                n: warps * np.array([t.traffic[n].sectors_per_warp for t in touched])
                for n in LAYOUTS
            },
            sectors={
                n: np.array([t.traffic[n].sectors_per_block for t in touched]) for n in LAYOUTS
            },
        )

    def _footprint(self, cells: pd.DataFrame, i: int) -> Any:
        if i not in self._touched:
            row = cells.iloc[i]
            workload = workload_of(row["kernel"])
            params = tuple((n, int(row[n])) for n in sorted(workload.axes))
            problem = Problem(int(row["height"]), int(row["width"]))
            cell = Cell(row["kernel"], row["dtype"], row["variant"], problem, params)
            self._touched[i] = footprint(workload, cell, self._known)
        return self._touched[i]


class Learned:
    """Regression on what is known of a launch before it runs; `features` has a row a cell.

    Numbers are logarithms where all are positive, words are numbered (`categories`).
    """

    def __init__(self, cells: pd.DataFrame) -> None:
        self.names = [
            n
            for n in cells
            if n in CATEGORIES
            or (pd.api.types.is_numeric_dtype(cells[n]) and not n.endswith(OUTCOMES))
        ]
        self.categories = [n in CATEGORIES for n in self.names]
        self.features = np.column_stack([self._numbers(cells[n]) for n in self.names])
        moved = (cells["bytes_read"] + cells["bytes_written"]).to_numpy(np.float64)
        self.log_bytes = np.log(moved)

    @staticmethod
    def _numbers(column: pd.Series) -> Floats:
        if column.name in CATEGORIES:
            return np.unique(column.to_numpy(str), return_inverse=True)[1].astype(float)
        values = column.to_numpy(np.float64, na_value=np.nan)
        return np.log(values) if np.nanmin(values) > 0 else values

    def forest(self) -> RandomForestRegressor:
        """A random forest of 300 trees."""
        return RandomForestRegressor(300, max_features=0.5, random_state=SEED)

    def boosting(self) -> HistGradientBoostingRegressor:
        """Gradient boosting in 500 small steps."""
        return HistGradientBoostingRegressor(
            max_iter=500,
            learning_rate=0.05,
            min_samples_leaf=5,
            categorical_features=self.categories,
            random_state=SEED,
        )

    def way(self, make: Callable[[], Any]) -> Way:
        """Seconds per byte, learned by what `make` makes."""

        def predict(cells: pd.DataFrame, trained: Bools, wanted: Bools) -> Floats:
            target = np.log(cells["measured_s"].to_numpy(np.float64)) - self.log_bytes
            return self.learn(make(), target, trained, wanted) + self.log_bytes[wanted]

        return predict

    def learn(self, estimator: Any, target: Floats, trained: Bools, wanted: Bools) -> Floats:
        """`target` (a value a cell) of the `wanted` cells, as learned from the `trained`."""
        # An axis of kernels that are all held out says nothing; boosting refuses it.
        silent = np.isnan(self.features[trained]).all(axis=0)
        features = np.where(silent, 0.0, self.features)
        estimator.fit(features[trained], target[trained])
        return np.asarray(estimator.predict(features[wanted]), np.float64)
