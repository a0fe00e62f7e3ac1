"""What the shards' provenance tells of the code that ran: options, registers, memory accesses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def version_facts(provenance: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """For each ``kernel/dtype`` what is known of each version, by its name (`core.space.Version`).

    ``facts`` are the different ones, each a list of lines; ``versions`` says which of them belongs
    to which version. Where shards differ the first one counts: they are of one kernel and device.
    """
    found: dict[str, dict[str, Any]] = {}
    for shard in provenance:
        params = shard["params"]
        place = found.setdefault(
            f"{Path(params['folder']).name}/{params['dtype']}", {"facts": [], "versions": {}}
        )
        for version, lines in _versions(shard):
            if version not in place["versions"]:
                if lines not in place["facts"]:
                    place["facts"].append(lines)
                place["versions"][version] = place["facts"].index(lines)
    return found


def _versions(shard: Mapping[str, Any]) -> Iterable[tuple[str, list[str]]]:
    code = shard["machine_code"] or {}
    told = code.get("variants", {})
    for version in sorted({*shard["builds"], *told, *shard["build_failures"]}):
        lines = []
        if version in shard["builds"]:
            lines.append(f"Options: {shard['builds'][version] or 'none'}")
        entries = told.get(version, {}).get("entries") or []
        lines += [_entry_line(entry) for entry in entries]
        if entries:
            lines.append(f"Architecture: {code['arch']}")
        failure = told.get(version, {}).get("failure")
        lines += [f"Check of the machine code: {failure}"] if failure else []
        yield version, lines


def _entry_line(entry: Mapping[str, Any]) -> str:
    spilled = entry["spill_loads"] + entry["spill_stores"]
    accesses = ", ".join(
        f"{access['count']} {access['space']} {access['kind']}"
        f"{'s' if access['count'] > 1 else ''} of {access['width']} bytes"
        f"{' in a loop' if access['in_loop'] else ''}"
        for access in entry["accesses"]
    )
    spills = f"{spilled} spills" if spilled else "no spills"
    return f"{entry['entry']}: {entry['registers']} registers, {spills}; {accesses or 'no access'}"
