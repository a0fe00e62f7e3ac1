"""Data frames in which axes stay whole numbers, also beside kernels that lack them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from ..core.schema import is_axis

if TYPE_CHECKING:
    # Not imported: planning comes here before every start, and pandas takes as long as Snakemake.
    import pandas as pd

# What every writer of frames leaves in a file's schema, and readers of frames look for.
_KEY = b"pandas"


def axes_for_pandas(table: pa.Table) -> pa.Table:
    """`table` with a note of which columns pandas is to read as nullable whole numbers: its axes.

    Without it an axis that some kernels lack would be read as floating-point numbers with NaN.
    """
    return table.replace_schema_metadata(noted(table.schema).metadata)


def noted(schema: pa.Schema) -> pa.Schema:
    """The same of a schema; what else it is noted with stays."""
    axes = [
        {"name": n, "field_name": n, "pandas_type": "int64", "numpy_type": "Int64"}
        | {"metadata": None}
        for n in schema.names
        if is_axis(n)
    ]
    note = {"index_columns": [], "column_indexes": [], "columns": axes, "pandas_version": "2.2.0"}
    return schema.with_metadata({**(schema.metadata or {}), _KEY: json.dumps(note).encode()})


def as_frame(table: pa.Table) -> pd.DataFrame:
    """The rows as a frame that shares Arrow's memory; axes are columns of the type Int64."""
    # Each column is let go of when it is converted.
    return axes_for_pandas(table).to_pandas(split_blocks=True, self_destruct=True)
