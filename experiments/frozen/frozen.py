"""Holds what a refactoring must not change against frozen values.

    make report-h200
    PYTHONPATH=workflow/scripts .venv/bin/python experiments/frozen/frozen.py results/h200
    … frozen.py results/h200 --update WHY     # freezes today's values, and says why they changed

From the recorded H200 run: page one and the report's conclusions, every group's fastest launch with
its bandwidth and tied set, the measured peaks, the device model's parameters, errors and a sample
of its predictions; the verdicts of `compare` on recorded pairs; the messages of
docs/troubleshooting.md.
Floats are compared to six digits: a fit ends elsewhere on another processor. The documents' golden
numbers are held by `make test-documents`.

Values that change on purpose are frozen again with a reason. The key ``changed`` of frozen.json
then has the day, the reason, and of each part the number of other values and the largest change.
"""

import hashlib
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from gpushmoo import compare

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FROZEN = HERE / "frozen.json"
GROUP = ["kernel", "dtype", "variant", "height", "width", "cache_state", "timing_mode"]
PAGES = ("first_page", "findings", "peaks", "curves", "sureness")
# The same thing twice, and two amounts of planted work.
PAIRS = {
    "same": ("nvidia-h200-repeated/r00", "nvidia-h200-repeated/r01"),
    "planted 3 %": ("nvidia-h200-repeated/r00", "nvidia-h200-repeated/planted-03-06"),
    "planted 10 %": ("nvidia-h200-repeated/r01", "nvidia-h200-repeated/planted-10-04"),
}
EVERY = 997
CHANGED = "changed"


def rounded(value: Any) -> Any:
    """`value` with all floats to nine digits."""
    if isinstance(value, float):
        return float(f"{value:.9g}") if value == value else "nan"
    if isinstance(value, dict):
        return {str(k): rounded(v) for k, v in sorted(value.items(), key=lambda kv: str(kv[0]))}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return value


def digest(values: Any) -> str:
    """The first digits of a SHA-256 over `values` as JSON."""
    return hashlib.sha256(json.dumps(values, default=str).encode()).hexdigest()[:12]


def best(run: Path) -> dict[str, Any]:
    """Each group's fastest launch, bandwidth, and the digest of its tied set."""
    frame = pq.read_table(run / "summary/best.parquet").to_pandas()
    groups = {}
    for name, cells in frame.groupby(GROUP, dropna=False):
        (fastest,) = cells[cells.is_fastest].to_dict("records")
        tied = sorted(cells.cell_key)
        groups[" ".join(map(str, name))] = [
            *(fastest[k] for k in ("cell_key", "bandwidth_gbs", "bandwidth_low_gbs")),
            fastest["share_of_peak"],
            len(tied),
            digest(tied),
        ]
    return groups


def model(run: Path) -> dict[str, Any]:
    """The device model's fit, and every EVERY-th of its predictions."""
    (device,) = json.loads((run / "model/device.json").read_text())["devices"]
    cells = pq.read_table(run / "model/device.parquet").to_pandas().sort_values("cell_key")
    sample = cells.iloc[::EVERY]
    predictions = zip(sample.cell_key, sample.predicted_s, sample.limit, strict=True)
    return {"fit": device, "predictions": list(predictions)}


def compared() -> dict[str, Any]:
    """The verdicts of `compare` on recorded pairs."""
    said = {}
    for name, (a, b) in PAIRS.items():
        found = compare(ROOT / "reports/reference" / a, ROOT / "reports/reference" / b)
        groups: pd.DataFrame = found.groups
        said[name] = {
            "cells": found.cells["verdict"].value_counts().to_dict(),
            "groups": groups[[c for c in groups if c.endswith("verdict")]].to_dict("list"),
            "changes": groups.select_dtypes("number").round(9).to_dict("list"),
        }
    return said


def energy(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The section of the report on energy, if it has one; whether it is figured is not frozen."""
    pages = [extra["facts"] for extra in report["extras"] if extra["name"] == "studies"]
    return [{k: v for k, v in page.items() if k != "figured"} for page in pages]


def main() -> None:
    """Compare, or freeze."""
    run = Path(sys.argv[1])
    report = json.loads((run / "report.json").read_text())
    page = (ROOT / "docs/troubleshooting.md").read_text().partition("\n## Mistakes")[2]
    parts = {
        "best": best(run),
        "peak": json.loads((run / "summary/peak.json").read_text()),
        "compare": compared(),
        "mistakes": re.findall(r"^\* Message: `(.+)`$", page, re.M),
        "model": model(run),
        "report": {name: report[name] for name in PAGES} | {"energy": energy(report)},
    }
    now = json.loads(json.dumps(rounded(parts), default=str))
    # What is large is kept as digests of its parts; a difference still names the part.
    now["peak"] = {"count": len(now["peak"]["peak"]), "digest": digest(now["peak"])}
    before = json.loads(FROZEN.read_text())
    history = before.pop(CHANGED, [])
    if sys.argv[2:3] == ["--update"]:
        [why] = sys.argv[3:]
        entry = {"day": date.today().isoformat(), "why": why, "parts": moved(before, now)}
        whole = now | {CHANGED: [*history, entry]}
        FROZEN.write_text(json.dumps(whole, ensure_ascii=False, indent=0) + "\n")
        print(*table(entry["parts"]), sep="\n")
        return
    found = list(differences(before, now))
    lines = [*found[:40], f"{len(found)} differences"] if found else ["all as frozen"]
    print(*lines, sep="\n")
    sys.exit(bool(found))


def differences(old: Any, new: Any) -> Iterator[str]:
    """A line for each place where `new` differs from `old`."""
    return (f"{where}: {a!r} -> {b!r}" for where, a, b in changes(old, new))


def changes(old: Any, new: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each place where `new` differs from `old`, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from changes(old.get(key), new.get(key), f"{where}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from changes(a, b, f"{where}/{place}")
    elif isinstance(old, float) and isinstance(new, float) and math.isclose(old, new, rel_tol=1e-6):
        return
    elif old != new:
        yield where, old, new


def moved(old: Any, new: Any) -> dict[str, dict[str, float]]:
    """By part the number of values that differ, and the largest relative change of a number."""
    found: dict[str, dict[str, float]] = {}
    for where, a, b in changes(old, new):
        part = found.setdefault(where.split("/")[1], {"values": 0, "largest": 0.0})
        part["values"] += 1
        if isinstance(a, float) and isinstance(b, float) and a:
            part["largest"] = max(part["largest"], round(abs(b / a - 1.0), 4))
    return found


def table(parts: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """The changes of each part in Markdown."""
    yield "| part | values that moved | largest change of a number |"
    yield "|---|---|---|"
    for name, part in parts.items():
        yield f"| {name} | {part['values']} | {part['largest']:.1%} |"


if __name__ == "__main__":
    main()
