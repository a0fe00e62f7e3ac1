"""What two sides were measured with: what forbids comparing them, and what has to be told."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from .errors import CompareError
from .runs import RunCells

# Of the differences of one kind.
_MOST_NAMED = 3


def refuse_unlike(sides: Sequence[Sequence[RunCells]]) -> None:
    """Raise CompareError where samples mean something else, or nothing is common."""
    runs = [run for side in sides for run in side]
    protocols = {run.name: {shard["protocol_version"] for shard in run.provenance} for run in runs}
    if len(set.union(*protocols.values())) > 1:
        told = ", ".join(f"'{n}' by {min(versions)}" for n, versions in protocols.items())
        raise CompareError(f"The runs were measured by different protocols ({told}).")
    names = [{name for run in side for name in run.cells["device_name"]} for side in sides]
    if not set.intersection(*names):
        models = [", ".join(sorted(side)) for side in names]
        same = f", the runs of the same thing on {models[2]}" if models[2:] else ""
        raise CompareError(
            f"A was measured on {models[0]} and B on {models[1]}{same}; compare one model."
        )


def differences(
    first: Sequence[RunCells], second: Sequence[RunCells], kernels: Collection[str]
) -> list[str]:
    """What A and B were measured, built or run by where both differ, a line each.

    Only of shards of these `kernels`.
    """
    facts = [_facts(side, kernels) for side in (first, second)]
    names = dict.fromkeys(name for side in facts for name in side)
    common = [name for name in names if all(name in side for side in facts)]
    return [
        f"{name}: {_named(facts[0][name])} → {_named(facts[1][name])}"
        for name in common
        if facts[0][name] != facts[1][name]
    ]


def _named(values: set[str]) -> str:
    shown = sorted(values)[:_MOST_NAMED]
    return ", ".join(shown) + (f" and {len(values) - len(shown)} more" if values > {*shown} else "")


def _facts(runs: Sequence[RunCells], kernels: Collection[str]) -> dict[str, set[str]]:
    facts: dict[str, set[str]] = {}
    for shard in (shard for run in runs for shard in run.provenance):
        kernel = str(shard["params"]["folder"]).rsplit("/", 1)[-1]
        if kernel in kernels:
            for name, value in _of_shard(shard, kernel):
                facts.setdefault(name, set()).add(value)
    return facts


def _of_shard(shard: Mapping[str, Any], kernel: str) -> Iterator[tuple[str, str]]:
    device, host, params = shard.get("device", {}), shard.get("host", {}), shard["params"]
    for name, value in (
        ("device", device.get("uuid")),
        ("driver", device.get("driver")),
        ("runtime", device.get("runtime")),
        ("host", host.get("name")),
        ("system", host.get("system")),
        ("gpushmoo", shard.get("gpushmoo")),
        (f"code of {kernel}", shard.get("kernel_digest")),
        ("seed of the data", params.get("seed")),
        ("thread limit", params.get("thread_limit")),
    ):
        if value is not None:
            yield name, str(value)
    for variant, options in (shard.get("builds") or {}).items():
        yield f"compiler options of {kernel}, {params['dtype']}, {variant}", str(options)
    for name, value in params["measure"].items():
        yield f"measure.{name} of {kernel}", json.dumps(value, sort_keys=True)
