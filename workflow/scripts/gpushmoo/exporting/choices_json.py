"""The choices as plain values, for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from .choices import Choice, Margin
from .groups import CONDITIONS, NUMBERS, ExportGroup, Point
from .t4 import t4_metadata

FORMAT, FORMAT_VERSION = "gpushmoo choices", 1


def choices_json(
    choices: Sequence[Choice],
    left_out: Sequence[str],
    run: str,
    provenance: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """All choices with the problems that they hold for; `provenance` is that of the shards."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "run": run,
        "provenance": _provenance(provenance),
        "choices": [_choice(choice) for choice in choices],
        "left_out": list(left_out),
    }


def _provenance(shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What measured, when, and digests of the kernels' sources."""
    digests: dict[str, set[str]] = {}
    for shard in shards:
        digests.setdefault(Path(shard["params"]["folder"]).name, set()).add(shard["kernel_digest"])
    written = sorted(shard["written_at"] for shard in shards)
    return {
        **t4_metadata(shards)["metadata"],
        "kernel_digests": {kernel: sorted(found) for kernel, found in sorted(digests.items())},
        "written_at": {"first": written[0], "last": written[-1]},
    }


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        **choice.target,
        "size_class": choice.size_class,
        **dict(zip(CONDITIONS, choice.conditions, strict=True)),
        "launch": dict(choice.point),
        "best_for_all_problems": choice.everywhere,
        "tied_at": [_problem(group, choice.point) for group in choice.tied],
        "not_tied_at": [_problem(group, choice.point) for group in choice.not_tied],
        "margins_at": _size(choice.main),
        "margins": [_margin(margin) for margin in choice.margins],
    }


def _size(group: ExportGroup) -> dict[str, Any]:
    return {name: group.key[name] for name in ("height", "width", *CONDITIONS)}


def _problem(group: ExportGroup, point: Point) -> dict[str, Any]:
    """How the launch does on a problem; what was not measured there has no numbers."""
    row = group.ok.get(point)
    numbers = {} if row is None else {n: float(row[n]) for n in NUMBERS if not pd.isna(row[n])}
    return {
        **_size(group),
        "tied": len(group.tied),
        "candidates": len(group.ok),
        "slower_than_fastest": group.slower(point),
        **numbers,
    }


def _margin(margin: Margin) -> dict[str, Any]:
    return {
        "than": margin.name,
        "launch": dict(margin.point),
        "slower": margin.slower,
        "low": margin.low,
        "high": margin.high,
        "confidence": margin.confidence,
    }
