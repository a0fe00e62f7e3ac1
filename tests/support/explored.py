"""A data set for the explorer's tests: maps, curves, slices, a single cell, faults, ties."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
import synthetic
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.core.schema import Status
from gpushmoo.core.space import Problem
from gpushmoo.measuring.events import CellRun
from gpushmoo.model.fit_stage import DEVICE_MODEL_SCHEMA
from gpushmoo.storage.store import write_parquet
from synthetic import write_shard

# What a kernel's author may have printed; no browser may take it for markup.
HOSTILE = '</script><img src=x onerror="document.title=1"> & "quoted"'
LARGE, SMALL, SINGLE = Problem(1024, 1024), Problem(256, 512), Problem(64, 64)
BLOCKS = {"block_x": [8, 16, 32, 64, 128], "block_y": [1, 2, 4, 8, 16]}
FAULTY = {"block_x": 8, "block_y": 2}


def explored_dataset(folder: Path) -> Path:
    """A data set in `folder`, of shards in its folder ``cells``."""
    cells = folder / "cells"
    with pytest.MonkeyPatch.context() as patch:
        end = synthetic._end

        def faulty(run: CellRun, *rest: object) -> None:
            if dict(run.cell.params) == FAULTY and run.cell.problem == LARGE:
                run.end(Status.WRONG_RESULT, HOSTILE)
                run.verified_words, run.wrong_words = 100, 7
            else:
                end(run, *rest)  # type: ignore[arg-type]

        patch.setattr(synthetic, "_end", faulty)
        for dtype in ("double", "float"):
            for name, problems, states, axes in (
                ("copy2d_coalesced", (LARGE, SMALL), ("flushed", "warm"), BLOCKS),
                ("single", (SINGLE,), ("warm",), {"block_x": [32], "block_y": [8]}),
            ):
                write_shard(
                    cells / name / dtype / "0000-of-0001.parquet",
                    "copy2d_coalesced",
                    dtype,
                    problems=problems,
                    states=states,
                    axes=axes,
                    variants=("element",),
                )
    partitions = {"num_partition": [1, 2, 4, 8, 16, 32, 64, 128, 256]}
    curve = cells / "block_eq_partition" / "float" / "0000-of-0001.parquet"
    write_shard(curve, "block_eq_partition", "float", axes=partitions, variants=("exact",))
    slices = {"block_x": [64, 128, 256], "unroll": [1, 2, 4], "passes": [1, 2]}
    loads = cells / "global_load" / "float" / "0000-of-0001.parquet"
    write_shard(loads, "global_load", "float", axes=slices)
    dataset = folder / "dataset"
    aggregate(sorted(cells.rglob("*.parquet")), dataset)
    return dataset


def write_predictions(cells: pd.DataFrame, out: Path) -> None:
    """A table of the device's model that predicts of verified cells a tenth more than measured."""
    told = cells[cells["status"] == "ok"].copy()
    for field in DEVICE_MODEL_SCHEMA:
        if field.type == pa.float64():
            told[field.name] = 1.1 * told["bandwidth_gbs"]
    told = told.assign(trained=True, limit="DRAM")
    table = pa.Table.from_pandas(
        told[DEVICE_MODEL_SCHEMA.names], DEVICE_MODEL_SCHEMA, preserve_index=False
    )
    write_parquet(table.replace_schema_metadata(None), out, {})
