"""A guided sweep beside the exhaustive one of the same launches, whole: seconds and answers.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/compare_search.py OUT.json --rounds 2

Both are sweeps by the command ``snakemake … cells`` of the block shapes of copies, textures and
surfaces and of numbers of blocks, one after the other, with nothing left of the last one. The
answer of each group is judged by the exhaustive sweep of the same round: how much slower the launch
that the guided one names is than the fastest, and whether its interval overlaps that one's.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).resolve().parents[2]
RUN = "compare-search"
GROUP = ["kernel", "dtype", "variant", "height", "width", "cache_state"]
SHAPES = {axis: {"from": 4, "to": 64, "step": 1} for axis in ("block_x", "block_y")}


@dataclass(frozen=True)
class Swept:
    """One sweep: wall seconds, its cells, and how its searches ended."""

    wall_s: float
    device: str
    cells: pd.DataFrame
    searches: list[dict[str, Any]]


def sweep_config(mode: str) -> dict[str, Any]:
    """Ten groups of 2,021 valid launches, and four of numbers of blocks."""
    full = yaml.safe_load((ROOT / "config/full.yaml").read_text())
    flat = {"cache": ["warm"], "axes": SHAPES}
    kernels = {
        "copy2d_coalesced": {
            "dtypes": ["float", "double"],
            "variants": ["element"],
            "sizes": [1024, 8192],
            "cache": ["warm", "flushed"],
            "axes": SHAPES,
        },
        "tex2d_sum": {"dtypes": ["float"], "variants": ["block-point-clamp"], **flat}
        | {"sizes": [4096]},
        "surf2d_memset": {"dtypes": ["float"], "variants": ["block-one"], **flat}
        | {"sizes": [4096]},
        "block_eq_partition": full["kernels"]["block_eq_partition"]
        | {"cache": ["warm"], "dtypes": ["float", "double"], "variants": ["exact"]},
    }
    return {
        "run": RUN,
        "backend": "cuda",
        "only": list(kernels),
        "kernels": kernels,
        "measure": full["measure"]
        | {"repeats": 1, "relative_half_width": 0.01, "search": {"mode": mode}},
        "chapters": None,
    }


def run(mode: str, scratch: Path) -> Swept:
    """A whole sweep, with nothing left of the last one."""
    shutil.rmtree(ROOT / "results" / RUN, ignore_errors=True)
    config = scratch / f"{mode}.yaml"
    config.write_text(yaml.safe_dump(sweep_config(mode)))
    command = [sys.executable, "-m", "snakemake", "--cores", "all", "--configfile", str(config)]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--", "cells"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    wall_s = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{mode} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    files = sorted((ROOT / "results" / RUN / "cells").rglob("*.parquet"))
    files = [file for file in files if ".kept" not in file.parts]
    told = [json.loads(pq.read_schema(f).metadata[b"gpushmoo"]) for f in files]
    cells = pd.concat([pq.ParquetFile(f).read().to_pandas() for f in files], ignore_index=True)
    searches = [
        {"kernel": Path(t["params"]["folder"]).name, "dtype": t["params"]["dtype"], **search}
        for t in told
        for search in t.get("searches", ())
    ]
    return Swept(wall_s, told[0]["device"]["name"], cells, searches)


def answers(guided: Swept, every: Swept) -> list[dict[str, Any]]:
    """How each group was answered, by the times of the exhaustive sweep."""
    searches = {tuple(s[name] for name in GROUP): s for s in guided.searches}
    found, known = (s.cells[s.cells["status"] == "ok"] for s in (guided, every))
    groups = dict(list(found.groupby(GROUP)))
    return [
        answer(groups[key], cells, searches[key]) | dict(zip(GROUP, key, strict=True))
        for key, cells in known.groupby(GROUP)
    ]


def answer(found: pd.DataFrame, known: pd.DataFrame, search: Mapping[str, Any]) -> dict[str, Any]:
    """Of one group."""
    mine = found.loc[found["median_s"].idxmin()]
    best = known.loc[known["median_s"].idxmin()]
    there = known[known["cell_key"] == mine["cell_key"]].iloc[0]
    return {
        "candidates": len(known),
        "measured": len(found),
        "samples": int(found["samples_s"].map(len).sum()),
        "samples_of_all": int(known["samples_s"].map(len).sum()),
        "slower": float(there["median_s"] / best["median_s"] - 1.0),
        "tied": bool(there["own_low_s"] <= best["own_high_s"]),
        "better_probability": search["better_probability"],
        "ended": search["ended"],
    }


def main() -> None:
    """Sweep both ways in turn, and write what came out after every round."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory() as name:
        for _ in range(args.rounds):
            guided = run("guided", Path(name))
            print(f"guided: {guided.wall_s:.1f} s", flush=True)
            every = run("all", Path(name))
            rows = answers(guided, every)
            found = {
                "guided_s": guided.wall_s,
                "all_s": every.wall_s,
                "ratio": every.wall_s / guided.wall_s,
                "cells": len(every.cells),
                "groups": len(rows),
                "right": sum(row["slower"] <= 0.01 or row["tied"] for row in rows),
            }
            print(found, flush=True)
            rounds.append(found | {"groups_of": rows})
            written = datetime.now(UTC).isoformat(timespec="seconds")
            told = {"device": every.device, "written_at": written, "rounds": rounds}
            args.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
