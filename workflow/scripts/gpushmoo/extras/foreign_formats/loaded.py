"""Write tables that serving programs load: vLLM's and Hugging Face's JSON, and Triton's cache.

vLLM finds a file by the device's name in the file name, and uses the entry of the nearest size. It
rejects keys that are not numbers (except ``triton_version``), so the conditions of a table are in a
separate file, HOLDS. Triton reads ``configs_timings`` and uses the fastest; it ignores other keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...analysis.best import launch_to_use
from ...core.dtypes import TRITON_OPTIONS
from ...exporting.choices import TARGET, USUAL, ExportGroup, Point

HOLDS = "holds.json"


@dataclass(frozen=True)
class LoadedTable:
    """The name and content of a file, and the groups that it is for, with their launches."""

    name: str
    content: Mapping[str, Any]
    entries: Sequence[tuple[ExportGroup, Point]]

    @property
    def holds(self) -> dict[str, Any]:
        """Conditions for which the file is valid, and the speed of its launches there."""
        group, _ = self.entries[0]
        return {
            "file": self.name,
            **{name: group.key[name] for name in TARGET},
            "conditions": list(group.conditions),
            "shapes": [
                {
                    "height": int(one.key["height"]),
                    "width": int(one.key["width"]),
                    "launch": dict(point),
                    "tied": point in one.tied,
                    "slower_than_fastest": one.contest.slower(point),
                }
                for one, point in self.entries
            ],
        }


def chosen(group: ExportGroup) -> Point:
    """Return the launch for this problem alone."""
    return launch_to_use([group.contest])


def vllm_tables(groups: Sequence[ExportGroup]) -> list[LoadedTable]:
    """Return a table for each kernel, type, condition and, if heights repeat, width."""
    kinds: dict[tuple[Any, ...], list[ExportGroup]] = {}
    for group in groups:
        kinds.setdefault((*(group.key[c] for c in TARGET), *group.conditions), []).append(group)
    tables = []
    for members in kinds.values():
        for size, axis, some in _by_size(members):
            key, conditions = some[0].key, some[0].conditions
            names = [key["kernel"], key["variant"], *size]
            names += [condition for condition in conditions if condition not in USUAL]
            names += [f"device_name={key['device_name']}", f"dtype={key['dtype']}"]
            entries = [(group, chosen(group)) for group in some]
            sizes = sorted((int(group.key[axis]), point) for group, point in entries)
            content = {str(size): dict(point) for size, point in sizes}
            name = re.sub(r"[^\w.,=-]", "_", ",".join(names))
            tables.append(LoadedTable(f"{name}.json", content, entries))
    return tables


def _by_size(groups: Sequence[ExportGroup]) -> Iterator[tuple[list[str], str, list[ExportGroup]]]:
    """Yield the fixed part of the size, the axis that differs between groups, and these sorted."""
    heights = [int(g.key["height"]) for g in groups]
    widths = [int(g.key["width"]) for g in groups]
    if len({*heights}) == 1:
        parts = {f"M={heights[0]}" if heights[0] > 1 else "": ("width", [*groups])}
    elif len({*heights}) == len(heights) and len({*widths}) > 1:
        parts = {"": ("height", [*groups])}
    else:
        parts = {}
        for width, group in zip(widths, groups, strict=True):
            parts.setdefault(f"N={width}", ("height", []))[1].append(group)
    for fixed, (axis, some) in parts.items():
        yield [fixed] if fixed else [], axis, some


# Parts of a Triton configuration besides the kernel's own parameters, with their defaults.
_DEFAULTS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}


def triton_table(name: str, group: ExportGroup) -> LoadedTable:
    """Return the launch for one problem as Triton's autotuner caches it; times in milliseconds.

    Triton uses the fastest of a file, so the file contains only the chosen one.
    """
    point = chosen(group)
    launch = dict(point)
    options = {name: launch.pop(name) for name in TRITON_OPTIONS if name in launch}
    row = group.ok[point]
    times = [1e3 * float(row[c]) for c in ("median_s", "group_low_s", "group_high_s")]
    config = {"kwargs": launch, **_DEFAULTS, **options, "pre_hook": None, "ir_override": None}
    key = [int(group.key["height"]), int(group.key["width"]), group.key["dtype"]]
    content = {
        "key": key,
        "configs_timings": [[config, times]],
        "device_name": group.key["device_name"],
    }
    return LoadedTable(name, content, [(group, point)])
