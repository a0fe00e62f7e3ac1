"""How well the model of a device predicts cells that were kept from it, beside other ways.

    python3 -m venv sk && sk/bin/pip install scikit-learn
    realpath .venv/lib/python3.*/site-packages > \
        "$(sk/bin/python -c 'import site; print(site.getsitepackages()[0])')/project.pth"
    export PYTHONPATH=workflow/scripts:kernels OPENBLAS_NUM_THREADS=1
    JUDGE=experiments/benchmarks/judge_model.py
    sk/bin/python $JUDGE describe cells.parquet --record reports/reference/nvidia-h200
    sk/bin/python $JUDGE held judged.json --cells cells.parquet
    sk/bin/python $JUDGE unseen unseen.json --cells cells.parquet --facts facts.json \
        --unseen gallery=gallery.parquet seeds=seeds.parquet
    sk/bin/python $JUDGE counted counted.json --counters counters.parquet --model device.json \
        --record reports/reference/nvidia-h200 reports/reference/nvidia-h200-gallery \
        reports/reference/nvidia-h200-machine

Needs no device. Needs scikit-learn, which the environment does not have, so make another one.

``describe`` writes what `gpushmoo.model` sees of each recorded cell, its launch
parameters and what was measured. ``held`` keeps regions of cells from the fit that differ from all
others in a property that a model must know (element type, kernel, fit in the last cache) and
judges the cells inside; with nothing kept, the cells that are not in the training set. ``unseen``
judges by recordings that had no part: other devices of that name, kernels or sizes; and how good
the cell is that a model names as the fastest of each group, fitted, and with figures of
micro-benchmarks alone (``--facts``). ``counted`` holds sectors between L1 and L2, bytes of DRAM and
resident warps, as the model works them out from the shape of a launch, against hardware counters.
All ways learn from the same cells:

* ``model``: one set of parameters for all cells.
* ``shaken``: the same from other first values: what the training does not tell stays at these, and
  the project's were found with all cells in view.
* ``near``: between the measured cells of the same group.
* ``boosting``: gradient boosting on all that is known of a launch.

Errors are [cells that the way predicts, median, 95th percentile, largest |predicted/measured − 1|].
A residual is log(measured / predicted); a band of half-width b means that the measured time is
between predicted · exp(−b) and predicted · exp(b).
"""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.spatial
import sklearn
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.run_quality import dataset_provenance
from gpushmoo.core.code_path import CodePath
from gpushmoo.core.paths import KERNELS
from gpushmoo.core.schema import GROUP, is_axis
from gpushmoo.core.space import Cell, Problem
from gpushmoo.model.fit import fit_device, training
from gpushmoo.model.form import FIRST, Model, first_values
from gpushmoo.model.launches import Describer, DeviceFacts, Launches, code_paths, device_facts
from gpushmoo.storage.dataset import partitions, read_medians
from gpushmoo.storage.store import read_metadata, unpacked
from gpushmoo.storage.wholefile import write_json
from gpushmoo.workloads.contract import Workload
from gpushmoo.workloads.loader import load_kernel
from sklearn.ensemble import HistGradientBoostingRegressor

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
# All cells, which of them it may learn from, which it shall predict: log(seconds), NaN for none.
Way = Callable[[pd.DataFrame, Bools, Bools], Floats]

SEED = 0
PROMISED = 0.9
L2_BYTES = 62914560
NOTHING = "nothing"
# Shares of the last cache. The data of a launch is inside below the first share, and outside above
# the second. In between, a part of it stays.
INSIDE, OUTSIDE = 0.4, 1.5
COPIES = ("block_eq_partition", "copy2d_coalesced", "copy2d_document", "global_copy")
# Blocks for two on each multiprocessor of an H200.
FEW_PARTITIONS = 264
# A quantile of fewer residuals says nothing of a region; a group of fewer cells offers no choice.
MIN_CELLS, MIN_CHOICE = 20, 10
# Less is what the driver moves besides.
MIN_BYTES = 2**20
# Launches in a sample, about as in the records.
IN_A_SAMPLE = 20
# Quantities by the counters that hold them.
COUNTED = {
    "sectors_loaded": "l2_read_sectors",
    "sectors_stored": "l2_write_sectors",
    "dram_read": "dram_read_bytes",
    "dram_written": "dram_write_bytes",
    "warps": "active_warps",
}
# How near to the fastest a named cell shall be.
NEAR = 0.05
NEIGHBOURS = 4
# Variants that use memory in another way than the rest of their kernel are judged apart.
APART = {
    "transpose": ("naive", "tile"),
    "stencil5": ("global", "tiled"),
    "tex2d_sum": ("reduced",),
}
CATEGORIES = ("kernel", "dtype", "variant", "cache_state")
# Measured columns, those that follow from them, and the name of a cell.
OUTCOMES = ("_s", "_gbs", "spread", "repeats", "samples", "cell_key")


@cache
def workload_of(kernel: str) -> Workload:
    """The workload of a kernel of the project."""
    return load_kernel(KERNELS / kernel).workload


def described_cells(record: Path) -> pd.DataFrame:
    """The described cells of the shards in `record`, with launch parameters and results."""
    with TemporaryDirectory() as folder:
        dataset = Path(folder) / "dataset"
        aggregate(sorted(unpacked(record).rglob("*.parquet")), dataset)
        cells, provenance = read_medians(dataset), dataset_provenance(dataset)
        kernels = {str(where["kernel"]) for where in partitions(dataset)}
    codes = codes_of(record, provenance)
    workloads = {name: workload_of(name) for name in kernels}
    described, why = Describer(workloads, codes, device_facts(provenance)).table(cells)
    for kernel, sentence in sorted(why.items()):
        print(f"{kernel}: left out, {sentence}")
    more = [n for n in cells if is_axis(n)]
    told = cells[["cell_key", "tiles", "resident_blocks", "threads_per_block", *more]]
    # Nothing that reads the file shall have to know nullable numbers.
    plain = told.astype(dict.fromkeys(more, "float64"))
    return described.merge(plain, on="cell_key")


def codes_of(record: Path, shards: Iterable[Mapping[str, Any]]) -> dict[Any, CodePath]:
    """Return the paths through machine code of the shards, and of the file beside older ones."""
    beside = record / "code_paths.json"
    return dict(code_paths(shards, beside if beside.is_file() else None))


def regions(cells: pd.DataFrame, cache_bytes: int) -> npt.NDArray[np.str_]:
    """Return for each cell ``flushed``, or the fit of its bytes, such as ``inside``."""
    moved = (cells["bytes_read"] + cells["bytes_written"]).to_numpy(np.float64) / cache_bytes
    conditions = [cells["cache_state"] == "flushed", moved < INSIDE, moved > OUTSIDE]
    return np.select(conditions, ["flushed", "inside", "outside"], "around")


def hold_outs(cells: pd.DataFrame, cache_bytes: int) -> dict[str, Bools]:
    """Which cells each hold-out keeps, by its name; all have some, and leave some.

    `cells` has kernel, dtype, cache_state, bytes_read, bytes_written and, for `block_eq_partition`,
    num_partition.
    """
    where = regions(cells, cache_bytes)
    copies = cells["kernel"].isin(COPIES)
    found = {NOTHING: np.zeros(len(cells), bool)}
    for dtype in sorted(set(cells.loc[copies, "dtype"])):
        found[f"copies of {dtype}"] = (copies & (cells["dtype"] == dtype)).to_numpy()
    for kernel in sorted(set(cells["kernel"])):
        found[f"kernel {kernel}"] = (cells["kernel"] == kernel).to_numpy()
    if "num_partition" in cells:
        many = (cells["num_partition"] > FEW_PARTITIONS).to_numpy()
        found[f"num_partition above {FEW_PARTITIONS}"] = many
    for region in ("inside", "outside", "flushed"):
        found[region] = where == region
    return {n: kept for n, kept in found.items() if n == NOTHING or 0 < kept.sum() < len(kept)}


def errors(residuals: Floats) -> list[float]:
    """Number of the predictions, and median, 95th percentile and largest |predicted/measured − 1|.

    NaN among the `residuals` means a cell without a prediction. Without any prediction: [0].
    """
    found = residuals[~np.isnan(residuals)]
    if not len(found):
        return [0]
    off = np.abs(np.expm1(-found))
    return [len(off), *(round(float(np.quantile(off, q)), 4) for q in (0.5, 0.95, 1.0))]


def errors_by(residuals: Floats, names: npt.NDArray[np.str_]) -> dict[str, list[float]]:
    """The errors of each name's cells."""
    return {str(name): errors(residuals[names == name]) for name in np.unique(names)}


def near(cells: pd.DataFrame, trained: Bools, wanted: Bools) -> Floats:
    """From cells of the same group: a line over log2 of a single axis, else the neighbours' mean.

    Beyond its ends the line goes on level. Neighbours are the nearest in log2 of the axes.
    """
    known = np.log(cells["measured_s"].to_numpy(np.float64))
    out = np.full(len(cells), np.nan)
    for key, places in cells.groupby(list(GROUP), observed=True).indices.items():
        learn, ask = places[trained[places]], places[wanted[places]]
        axes = sorted(workload_of(key[0]).axes)
        # A launch parameter may be 0.
        at = np.log2(np.maximum(points_of(cells, axes).to_numpy(np.float64), 0.5))
        if len(axes) == 1 and len(learn):
            order = learn[np.argsort(at[learn, 0])]
            out[ask] = np.interp(at[ask, 0], at[order, 0], known[order])
        elif len(learn) >= NEIGHBOURS and len(ask):
            tree = scipy.spatial.KDTree(at[learn])
            out[ask] = known[learn[tree.query(at[ask], NEIGHBOURS)[1]]].mean(axis=1)
    return out[wanted]


def model(cells: pd.DataFrame, trained: Bools, wanted: Bools, first: Any = None) -> Floats:
    """The project's model of a device."""
    return np.log(fit_device(cells, trained, first or FIRST).seconds(cells[wanted]))


def shaken(cells: pd.DataFrame, trained: Bools, wanted: Bools) -> Floats:
    """The model from first values that say little: each wrong by up to a factor of two."""
    draw = np.random.default_rng(SEED)
    first = {name: v * float(np.exp(draw.uniform(-0.7, 0.7))) for name, v in FIRST.items()}
    return model(cells, trained, wanted, first)


def boosting(cells: pd.DataFrame, trained: Bools, wanted: Bools) -> Floats:
    """Seconds per byte by gradient boosting on all that is known of a launch before it runs.

    Numbers are logarithms where all are positive, words are numbered.
    """
    numbers = cells.select_dtypes(["number", "bool"]).columns
    known = {*CATEGORIES, *(n for n in numbers if not n.endswith(OUTCOMES))}
    names = [n for n in cells if n in known]
    features = np.column_stack([_numbers(cells[n]) for n in names])
    # An axis of kernels that are all held out says nothing; boosting refuses it.
    features = np.where(np.isnan(features[trained]).all(axis=0), 0.0, features)
    log_bytes = np.log((cells["bytes_read"] + cells["bytes_written"]).to_numpy(np.float64))
    target = np.log(cells["measured_s"].to_numpy(np.float64)) - log_bytes
    how = {"max_iter": 500, "learning_rate": 0.05, "min_samples_leaf": 5, "random_state": SEED}
    words = [n in CATEGORIES for n in names]
    estimator = HistGradientBoostingRegressor(categorical_features=words, **how)
    estimator.fit(features[trained], target[trained])
    return np.asarray(estimator.predict(features[wanted]) + log_bytes[wanted], np.float64)


def _numbers(column: pd.Series) -> Floats:
    if column.name in CATEGORIES:
        return np.unique(column.to_numpy(str), return_inverse=True)[1].astype(float)
    values = column.to_numpy(np.float64, na_value=np.nan)
    # Launches without an overhead are those of an infinitely long sample, which boosting refuses.
    values = np.where(np.isinf(values), np.nan, values)
    return np.log(values) if np.nanmin(values, initial=np.inf) > 0 else values


WAYS: Mapping[str, Way] = {"model": model, "shaken": shaken, "near": near, "boosting": boosting}


def held(cells: pd.DataFrame, cache_bytes: int) -> dict[str, Any]:
    """All errors by hold-out and way, and what a band of the model's residuals holds."""
    chosen, where = _training(cells), regions(cells, cache_bytes)
    measured = np.log(cells["measured_s"].to_numpy(np.float64))
    judged, residuals = {}, {}
    for name, kept in hold_outs(cells, cache_bytes).items():
        trained, wanted = chosen & ~kept, kept if kept.any() else ~chosen
        left = {n: measured[wanted] - way(cells, trained, wanted) for n, way in WAYS.items()}
        ways = {
            way: {"all": errors(off), "regions": errors_by(off, where[wanted])}
            for way, off in left.items()
        }
        judged[name] = {"trained": int(trained.sum()), "judged": int(wanted.sum()), "ways": ways}
        residuals[name] = pd.Series(left["model"], index=np.flatnonzero(wanted))
        print(name, {n: w["all"] for n, w in ways.items()}, flush=True)
    del residuals[NOTHING]
    bands = {"promised": PROMISED, "summary": {"wide": coverage(residuals)}}
    versions = {m.__name__: m.__version__ for m in (np, sklearn)}
    told = {"cells": len(cells), "training": int(chosen.sum()), "versions": versions}
    return {**told, "hold_outs": judged, "bands": bands}


def coverage(residuals: Mapping[str, pd.Series]) -> dict[str, float]:
    """Return the coverage, in each region that was left out, of a band from the other regions.

    It is the quantile PROMISED, over the other regions, of their quantiles PROMISED of |residual|,
    without cells that are also in this one. All are indexed by the number of the cell.
    """
    held_share, widths = [], []
    for name, mine in residuals.items():
        others = (r for n, r in residuals.items() if n != name)
        others = [np.abs(r[~r.index.isin(mine.index)].to_numpy()) for r in others]
        wide = [np.quantile(r, PROMISED) for r in others if len(r) >= MIN_CELLS]
        if wide:
            widths.append(float(np.quantile(wide, PROMISED)))
            held_share.append(float((np.abs(mine.to_numpy()) <= widths[-1]).mean()))
    return {
        "mean_coverage": round(float(np.mean(held_share)), 4),
        "worst_coverage": round(min(held_share), 4),
        "mean_half_width": round(float(np.mean(widths)), 4),
    }


def _training(cells: pd.DataFrame) -> Bools:
    axes = sorted({a for kernel in set(cells["kernel"]) for a in workload_of(kernel).axes})
    return np.asarray(training(cells, points_of(cells, axes)), bool)


def points_of(cells: pd.DataFrame, axes: list[str]) -> pd.DataFrame:
    """Launch parameters, a column each; 0 for an axis that a cell's sweep does not have."""
    return cells.reindex(columns=axes).astype("float64").fillna(0.0)


def unseen(
    cells: pd.DataFrame, others: Mapping[str, pd.DataFrame], facts: Mapping[str, float]
) -> dict[str, Any]:
    """Errors on `others`, and how good the cells are that a model names as the fastest."""
    chosen = _training(cells)
    row = cells.iloc[0]
    device = DeviceFacts(
        int(row["multiprocessors"]), int(row["cache_bytes"]), float(row["clock_hz"])
    )
    before = Model(first_values(facts, device)).seconds(Launches.of(cells))
    fitted = fit_device(cells, chosen).seconds(cells)
    return {
        "trained": int(chosen.sum()),
        "unseen": {name: _unseen(cells, chosen, other) for name, other in others.items()},
        "named": {"fitted": named_losses(cells, fitted), "before": named_losses(cells, before)},
    }


def _unseen(cells: pd.DataFrame, chosen: Bools, other: pd.DataFrame) -> dict[str, Any]:
    both = pd.concat([cells, other], ignore_index=True)
    wanted = np.arange(len(both)) >= len(cells)
    trained = np.concatenate([chosen, np.zeros(len(other), bool)])
    measured = np.log(other["measured_s"].to_numpy(np.float64))
    left = {name: measured - WAYS[name](both, trained, wanted) for name in WAYS if name != "shaken"}
    # What the first recording says of the same cells: how much two devices and two days differ.
    again = cells.merge(other, on="cell_key", suffixes=("", "_again"))
    differ = np.log(again["measured_s_again"] / again["measured_s"]).to_numpy()
    groups = other.groupby(["kernel", "height", "cache_state"], sort=True).indices
    ways = {name: errors_by(off, subjects(other)) for name, off in left.items()}
    return {
        "kernels": ways["model"],
        "ways": ways,
        "recorded_twice": errors_by(differ, subjects(again)),
        "groups": [
            {"kernel": k, "height": int(h), "cache_state": s, "errors": errors(left["model"][rows])}
            for (k, h, s), rows in groups.items()
        ],
    }


def subjects(cells: pd.DataFrame) -> npt.NDArray[np.str_]:
    """Name each cell's kernel, with the word of APART that its variant contains."""
    found = []
    for kernel, variant in zip(cells["kernel"], cells["variant"], strict=True):
        word = next((w for w in APART.get(kernel, ()) if w in variant), None)
        found.append(f"{kernel}, {word}" if word else str(kernel))
    return np.array(found)


def named_losses(cells: pd.DataFrame, predicted: Floats) -> dict[str, Any]:
    """What the cell costs that a prediction names as the fastest of its group, over the fastest.

    Over ``all`` groups: [groups, share of them within 5 %, median, largest loss].
    """
    losses = []
    groups = cells.assign(predicted=predicted).groupby(list(GROUP), sort=True, observed=True)
    for _, group in groups:
        if len(group) >= MIN_CHOICE:
            named = group.loc[group["predicted"].idxmin(), "measured_s"]
            losses.append(float(named / group["measured_s"].min() - 1))
    shares = np.mean(np.array(losses) <= NEAR), np.median(losses), max(losses)
    return {"all": [len(losses), *(round(float(share), 4) for share in shares)]}


def counted(file: Path, records: list[Path], model: Path) -> dict[str, Any]:
    """What the model says between cells and their times, beside the hardware counters in `file`."""
    counters = pd.read_parquet(file).set_index("cell_key", drop=False)
    told = json.loads(model.read_text(encoding="utf-8"))["devices"][0]
    predicted = predictions(counters, told, records)
    known = counters.loc[predicted.index]
    quantities = {}
    for quantity, counter in COUNTED.items():
        off = deviations(predicted[quantity], known[counter])
        quantities[quantity] = {"all": errors(off)}
    return {"device": told["device"], "launches": len(counters), "quantities": quantities}


def predictions(counters: pd.DataFrame, told: Mapping[str, Any], records: list[Path]) -> Any:
    """What the model says of each counted launch that it can describe, by the cell's key."""
    codes: dict[Any, Any] = {}
    for record in records:
        shards = (read_metadata(path) for path in sorted(unpacked(record).rglob("*.parquet")))
        codes |= codes_of(record, shards)
    workloads = {name: workload_of(name) for name in sorted(set(counters["kernel"]))}
    describer = Describer(workloads, codes, DeviceFacts(**told["facts"]))
    rows = {}
    for key, row in counters.iterrows():
        params = (word.split("=") for word in row["params"].split())
        points = tuple(sorted((name, int(value)) for name, value in params))
        problem = Problem(int(row["height"]), int(row["width"]))
        cell = Cell(
            row["kernel"], row["dtype"], row["variant"], problem, points, row["cache_state"]
        )
        asked = describer.launch(cell, int(row["resident_blocks"]), IN_A_SAMPLE)
        traffic = describer.traffic(cell)
        if isinstance(asked, dict) and traffic is not None:
            passes = asked["block_bytes"] / max(traffic.load.bytes, traffic.store.bytes)
            sent = passes * asked["blocks"]
            rows[key] = asked | {
                "sectors_loaded": traffic.load.warp_sectors * sent if row["bytes_read"] else 0.0,
                "sectors_stored": traffic.store.warp_sectors * sent,
            }
    found = pd.DataFrame.from_dict(rows, orient="index")
    x, model = Launches.of(found), Model({n: p["value"] for n, p in told["parameters"].items()})
    image = (found["texel_loads"] > 0) | (found["texel_stores"] > 0)
    through = model.sectors_sent(x) * x.blocks
    for side, other in (("sectors_loaded", "texel_loads"), ("sectors_stored", "texel_stores")):
        found[side] = np.where(image & (found[other] > 0), through, found[side])
    found["dram_read"], found["dram_written"] = model.dram_bytes(x)
    found["warps"] = np.minimum(x.resident, np.ceil(x.blocks / x.multiprocessors)) * x.warps
    return found


def deviations(predicted: Any, counted: Any) -> Any:
    """Logarithms of counted over predicted; none where next to nothing was counted."""
    least = MIN_BYTES if "bytes" in str(counted.name) else 1.0
    usable = (counted >= least) & (predicted > 0)
    return np.log(counted / predicted.where(usable)).to_numpy(np.float64)


def main() -> None:
    """Write one file."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("step", choices=("describe", "held", "unseen", "counted"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--record", type=Path, nargs="+")
    parser.add_argument("--counters", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--cells", type=Path)
    parser.add_argument("--unseen", nargs="+", metavar="NAME=FILE", default=[])
    parser.add_argument("--facts", type=Path)
    parser.add_argument("--l2-bytes", type=int, default=L2_BYTES, help="of the device; an H200's")
    given = parser.parse_args()
    if given.step == "describe":
        described_cells(given.record[0]).to_parquet(given.out)
        return
    if given.step == "counted":
        write_json(given.out, counted(given.counters, given.record, given.model))
        return
    cells = pd.read_parquet(given.cells)
    if given.step == "held":
        found = held(cells, given.l2_bytes)
    else:
        files = dict(named.split("=", 1) for named in given.unseen)
        others = {name: pd.read_parquet(file) for name, file in files.items()}
        found = unseen(cells, others, json.loads(given.facts.read_text())["values"])
    write_json(given.out, found)


if __name__ == "__main__":
    main()
