"""Which shards may count: those that were measured for this run and hold the cells of its plan.

A shard may be left over from another configuration or copied from another run. So its parameters
are compared with the plan, and its cells with those that the parameters make. Values are not
judged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..core.display import one_line
from ..core.run_plan import RunPlan, fully_sampled
from ..core.space import TYPICAL, asks_the_device, expand_axis, space_of

# Characters of a value in a sentence.
_MOST_SHOWN = 60


def fault_of(
    path: Path, table: pa.Table, metadata: Mapping[str, Any], plan: RunPlan | None
) -> str | None:
    """Why the shard in `path` must not be used, as a clause behind its name; None if it may.

    Without a `plan`, which a recorded data set has none of, its own parameters say what it holds.
    """
    try:
        if plan is not None:
            planned = plan.shard_params(path)
            if planned is None:
                return "is no shard of this run"
            if metadata["params"] != planned:
                key, *values = _difference("", metadata["params"], planned)
                measured, asked = (one_line(repr(value), _MOST_SHOWN) for value in values)
                return f"was measured with {key} = {measured}, and the run asks for {asked}"
        return _fault_of_cells(table, metadata)
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        # Its parameters do not have the form in which we write them.
        return f"carries a provenance that cannot be read ({type(err).__name__}: {err})"


def fault_of_repeat(first: pa.Table, metadata: Mapping[str, Any], later: pa.Table) -> str | None:
    """What is wrong with a later repeat of the shard whose first repeat is `first`."""
    whole = fully_sampled(first, metadata["params"]["measure"])
    measured = set(first.filter(whole).column("cell_key").to_pylist())
    return _fault_of_keys(measured, set(later.column("cell_key").to_pylist()))


def _difference(key: str, params: Any, planned: Any) -> tuple[str, Any, Any]:
    """The innermost key at which two different values differ, with its value in each."""
    if isinstance(params, Mapping) and isinstance(planned, Mapping):
        for name in sorted({*params, *planned}):
            pair = params.get(name), planned.get(name)
            if pair[0] != pair[1]:
                return _difference(f"{key}.{name}" if key else name, *pair)
    return key or "params", params, planned


def _fault_of_cells(table: pa.Table, metadata: Mapping[str, Any]) -> str | None:
    """Whether the rows are the cells of the shard's parameters; of a later repeat some of them."""
    params = metadata["params"]
    resolved: Mapping[str, list[int]] = metadata.get("resolved_axes", {})
    values = {
        axis: resolved[axis] if asks_the_device(spec) else expand_axis(spec, TYPICAL)
        for axis, spec in params["axes"].items()
    }
    # All repeats of a shard have the same.
    alike = {name: value for name, value in params.items() if name != "repeat"}
    planned = _planned_keys(json.dumps([alike, values], sort_keys=True))
    keys = set(table.column("cell_key").to_pylist())
    return _fault_of_keys(planned if params["repeat"] == 1 else planned & keys, keys)


@lru_cache(maxsize=1)
def _planned_keys(text: str) -> frozenset[str]:
    """The keys of the cells of a shard with these parameters and axes' values."""
    params, values = json.loads(text)
    cells = space_of(params).cells(Path(params["folder"]).name, values)
    return frozenset(cell.key for cell in cells)


def _fault_of_keys(planned: AbstractSet[str], keys: AbstractSet[str]) -> str | None:
    missing, extra = sorted(planned - keys), sorted(keys - planned)
    if missing:
        return f"lacks {len(missing)} of {len(planned)} cells, {missing[0]} for one"
    if extra:
        return f"holds {len(extra)} cells that were not to be measured, {extra[0]} for one"
    return None
