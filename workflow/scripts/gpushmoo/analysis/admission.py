"""Which shards may count: those that were measured for this run and hold the cells of its plan.

A shard may be left over from another configuration or copied from another run. So its parameters
are compared with the plan, and its cells with those that the parameters make. Values are not
judged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..core.run_plan import RunPlan, fully_sampled
from ..core.schema import cell_schema
from ..core.space import TYPICAL, asks_the_device, expand_axis, space_of


def fault_of(
    path: Path, table: pa.Table, metadata: Mapping[str, Any], plan: RunPlan | None
) -> str | None:
    """Why the shard in `path` must not be used, as a clause behind its name; None if it may.

    Without a `plan`, which a recorded data set has none of, its own parameters say what it holds.
    """
    try:
        return next(_faults(path, table, metadata, plan), None)
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        # Its parameters do not have the form in which we write them.
        return f"carries a provenance that cannot be read ({type(err).__name__}: {err})"


def fault_of_repeat(first: pa.Table, metadata: Mapping[str, Any], later: pa.Table) -> str | None:
    """What is wrong with a later repeat of the shard whose first repeat is `first`."""
    whole = fully_sampled(first, metadata["params"]["measure"])
    measured = first.filter(whole).column("cell_key")
    return _fault_of_keys(set(measured.to_pylist()), later.column("cell_key").to_pylist())


def _faults(
    path: Path, table: pa.Table, metadata: Mapping[str, Any], plan: RunPlan | None
) -> Iterator[str]:
    if plan is not None:
        yield from _faults_of_params(metadata["params"], plan.shard_params(path))
    yield from _faults_of_cells(table, metadata)


def _faults_of_params(params: Any, planned: Mapping[str, Any] | None) -> Iterator[str]:
    if planned is None:
        yield "is no shard of this run"
    elif params != planned:
        key, measured, asked = _difference("", params, planned)
        yield f"was measured with {key} = {_show(measured)}, and the run asks for {_show(asked)}"


def _difference(key: str, params: Any, planned: Any) -> tuple[str, Any, Any]:
    """The innermost key at which two different values differ, with its value in each."""
    if isinstance(params, Mapping) and isinstance(planned, Mapping):
        for name in sorted({*params, *planned}):
            pair = params.get(name), planned.get(name)
            if pair[0] != pair[1]:
                return _difference(f"{key}.{name}" if key else name, *pair)
    return key or "params", params, planned


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _faults_of_cells(table: pa.Table, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Whether the rows are the cells of the shard's parameters.

    A later repeat holds only those that are `fully_sampled` in the first: see `fault_of_repeat`.
    """
    params = metadata["params"]
    resolved: Mapping[str, list[int]] = metadata.get("resolved_axes", {})
    values = {
        axis: resolved[axis] if asks_the_device(spec) else expand_axis(spec, TYPICAL)
        for axis, spec in params["axes"].items()
    }
    # All repeats of a shard have the same.
    alike = {name: value for name, value in params.items() if name != "repeat"}
    planned = _planned(json.dumps([alike, values], sort_keys=True))
    keys, wanted = table.column("cell_key"), planned.column("cell_key")
    places = pc.index_in(keys, wanted)
    if places.null_count or (params["repeat"] == 1 and len(keys) != len(wanted)):
        yield _fault_of_keys(set(wanted.to_pylist()), keys.to_pylist()) or "holds a cell twice"
        return
    for name in planned.schema.names:
        if not table.column(name).equals(planned.column(name).take(places)):
            yield f"holds a cell whose {name} is not what its key says"


@lru_cache(maxsize=1)
def _planned(text: str) -> pa.Table:
    """The identity of each cell that a shard of these parameters and axes' values holds."""
    params, values = json.loads(text)
    cells = space_of(params).cells(Path(params["folder"]).name, values)
    identity = {
        "cell_key": [cell.key for cell in cells],
        "kernel": [cell.kernel for cell in cells],
        "dtype": [cell.dtype for cell in cells],
        "variant": [cell.variant for cell in cells],
        "height": [cell.problem.height for cell in cells],
        "width": [cell.problem.width for cell in cells],
        "cache_state": [cell.cache_state for cell in cells],
        "launch_kind": [cell.launch_kind for cell in cells],
    }
    axes = sorted(values)
    of_axes = {a: [cell.params[place][1] for cell in cells] for place, a in enumerate(axes)}
    fields = [cell_schema(axes).field(name) for name in (*identity, *axes)]
    return pa.table({**identity, **of_axes}, pa.schema(fields))


def _fault_of_keys(planned: set[str], keys: list[str]) -> str | None:
    missing, extra = sorted(planned - set(keys)), sorted(set(keys) - planned)
    if missing:
        return f"lacks {len(missing)} of {len(planned)} cells, {missing[0]} for one"
    if extra:
        return f"holds {len(extra)} cells that were not to be measured, {extra[0]} for one"
    return None
