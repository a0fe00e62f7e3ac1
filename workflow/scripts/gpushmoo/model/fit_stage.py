"""Fit the model to each measured device, and predict every cell of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..analysis.run_quality import dataset_provenance
from ..core.paths import ROOT
from ..core.schema import GROUP, Bool, Float64, Group, Meaning, String, is_axis
from ..storage.dataset import read_medians
from ..storage.store import write_parquet
from ..storage.wholefile import write_json
from ..workloads.loader import load_kernel
from .fit import Bands, Bools, DeviceFit, fit_device, measured_bands, training
from .form import PARAMETERS
from .launches import Describer, Launches, code_paths, device_facts
from .limits import whys

Json = dict[str, Any]

# Fewer cells do not determine all parameters.
MIN_CELLS = 40


class ModelledCell(Group):
    """Prediction of the model for a cell."""

    cell_key: String
    trained: Annotated[Bool, Meaning("whether the model of the device was fitted to the cell")]
    measured_s: Annotated[Float64, Meaning("median of a launch", "s")]
    predicted_s: Annotated[Float64, Meaning("predicted median of a launch", "s")]
    low_s: Annotated[
        Float64 | None, Meaning("lower end of the model's band. Null without a band", "s")
    ]
    high_s: Annotated[
        Float64 | None, Meaning("upper end of the model's band. Null without a band", "s")
    ]
    measured_gbs: Annotated[Float64, Meaning("bandwidth of the median", "GB/s")]
    predicted_gbs: Annotated[Float64, Meaning("predicted bandwidth", "GB/s")]
    limit: Annotated[String, Meaning("which of the limits alone would take longest")]
    start_share: Annotated[
        Float64, Meaning("time of the launch's start alone, over the largest limit", "0 to 1")
    ]
    dispatch_share: Annotated[
        Float64, Meaning("time of starting the blocks alone, over the largest limit", "0 to 1")
    ]
    service_share: Annotated[
        Float64, Meaning("time of instructions and lines alone, over the largest limit", "0 to 1")
    ]
    waiting_share: Annotated[
        Float64, Meaning("time of waiting for loads alone, over the largest limit", "0 to 1")
    ]
    l2_share: Annotated[Float64, Meaning("time of L2 alone, over the largest limit", "0 to 1")]
    dram_share: Annotated[Float64, Meaning("time of DRAM alone, over the largest limit", "0 to 1")]


DEVICE_MODEL_SCHEMA = ModelledCell.schema()


def fit_devices(
    dataset: Path, folders: Mapping[str, str], code: Sequence[Path], fits: Path, table: Path
) -> None:
    """Fit the model to every device of a data set, and write the fits and the predictions.

    Parameters
    ----------
    dataset
        Data set to read.
    folders
        Folder of each kernel, by name.
    code
        Files of recorded code paths, one or none.
    fits, table
        Files to write: the fits as JSON, the predictions as Parquet.
    """
    cells = read_medians(dataset, {"kernel": list(folders)})
    provenance = dataset_provenance(dataset)
    codes = code_paths(provenance, next(iter(code), None))
    workloads = {name: load_kernel(ROOT / folder).workload for name, folder in folders.items()}
    devices, rows = [], []
    for name, mine in cells.groupby("device_name", sort=True, observed=True):
        shards = [shard for shard in provenance if shard["device"]["name"] == name]
        describer = Describer(workloads, codes, device_facts(shards))
        told, predicted = fit_cells(str(name), mine, describer)
        # None if no machine code was read.
        arches = (code["arch"] for shard in shards if (code := shard["machine_code"]))
        devices.append(told | {"arch": next(arches, None)})
        rows.append(predicted)
    write_json(fits, {"devices": devices})
    found = pd.concat(rows) if rows else pd.DataFrame(columns=DEVICE_MODEL_SCHEMA.names)
    content = pa.Table.from_pandas(
        found[DEVICE_MODEL_SCHEMA.names], DEVICE_MODEL_SCHEMA, preserve_index=False
    )
    write_parquet(content.replace_schema_metadata(None), table, {})


def fit_cells(device: str, cells: pd.DataFrame, describer: Describer) -> tuple[Json, pd.DataFrame]:
    """Fit one device; return its model and table, or the sentence ``why`` and no rows."""
    described, left_out = describer.table(cells)
    if len(described) < MIN_CELLS:
        why = f"{len(described)} cells are too few for {len(PARAMETERS)} parameters"
        empty = pd.DataFrame(columns=DEVICE_MODEL_SCHEMA.names)
        return {"device": device, "why": why, "left_out": left_out}, empty
    axes = [n for n in cells if is_axis(n)]
    points = described[["cell_key"]].merge(cells[["cell_key", *axes]], on="cell_key")[axes]
    chosen = training(described, points)
    fit = fit_device(described, chosen)
    bands = measured_bands(described, chosen, fit)
    predicted = _predicted(described, chosen, fit, bands)
    controls = {name: workload.controls for name, workload in describer.workloads.items()}
    told = _told(device, describer, fit, bands, predicted) | {"left_out": left_out}
    return told | {"whys": whys(fit.model, described, predicted, points, controls)}, predicted


def _predicted(
    described: pd.DataFrame, chosen: Bools, fit: DeviceFit, bands: Bands
) -> pd.DataFrame:
    half = described["kernel"].map(bands.half_width).astype(float).to_numpy()
    gb = (described["bytes_read"] + described["bytes_written"]).to_numpy(np.float64) * 1e-9
    measured = described["measured_s"].to_numpy(np.float64)
    columns: dict[str, Any] = {
        **{n: described[n] for n in (*GROUP, "cell_key")},
        "trained": chosen,
        "measured_s": measured,
        "measured_gbs": gb / measured,
    }
    return pd.DataFrame(columns | fit.model.said(Launches.of(described), half))


def _told(
    device: str, describer: Describer, fit: DeviceFit, bands: Bands, predicted: pd.DataFrame
) -> Json:
    errors = (predicted["predicted_s"] / predicted["measured_s"] - 1).abs()
    unseen = predicted.assign(error=errors)[~predicted["trained"]]
    return {
        "device": device,
        "facts": asdict(describer.device),
        "cells": len(predicted),
        "trained": fit.trained,
        "spread": fit.spread,
        "parameters": {
            name: {**asdict(p), "unit": PARAMETERS[name].unit, "words": PARAMETERS[name].words}
            for name, p in fit.parameters.items()
        },
        "errors": {
            str(kernel): {
                "cells": len(e),
                "median": float(e.median()),
                "p95": float(e.quantile(0.95)),
            }
            for kernel, e in unseen.groupby("kernel")["error"]
        },
        "bands": asdict(bands),
    }
