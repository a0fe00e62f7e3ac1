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
    image = {"cache": ["warm"], "axes": SHAPES, "dtypes": ["float"], "sizes": [4096]}
    both = {"dtypes": ["float", "double"], "cache": ["warm", "flushed"], "sizes": [1024, 8192]}
    kernels = {
        "copy2d_coalesced": {"variants": ["element"], "axes": SHAPES, **both},
        "tex2d_sum": {"variants": ["block-point-clamp"], **image},
        "surf2d_memset": {"variants": ["block-one"], **image},
        "block_eq_partition": full["kernels"]["block_eq_partition"]
        | {"cache": ["warm"], "dtypes": ["float", "double"], "variants": ["exact"]},
    }
    own = {"repeats": 1, "relative_half_width": 0.01, "search": {"mode": mode}}
    asked = {"run": RUN, "backend": "cuda", "only": list(kernels), "kernels": kernels}
    return {**asked, "measure": {**full["measure"], **own}, "chapters": None}


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
    searches = []
    for params, found in ((t["params"], t.get("searches", ())) for t in told):
        of = {"kernel": Path(params["folder"]).name, "dtype": params["dtype"]}
        searches += [of | search for search in found]
    return Swept(wall_s, told[0]["device"]["name"], cells, searches)


def answers(guided: Swept, every: Swept) -> list[dict[str, Any]]:
    """How each group was answered, by the times of the exhaustive sweep."""
    searches = {tuple(s[name] for name in GROUP): s for s in guided.searches}
    found, known = (s.cells[s.cells["status"] == "ok"].groupby(GROUP) for s in (guided, every))
    rows = []
    for key, cells in known:
        tried = found.get_group(key)
        best = cells.loc[cells["median_s"].idxmin()]
        mine = tried.loc[tried["median_s"].idxmin(), "cell_key"]
        there = cells[cells["cell_key"] == mine].iloc[0]
        answer = {
            "candidates": len(cells),
            "measured": len(tried),
            "samples": int(tried["samples_s"].map(len).sum()),
            "samples_of_all": int(cells["samples_s"].map(len).sum()),
            "slower": float(there["median_s"] / best["median_s"] - 1.0),
            "tied": bool(there["own_low_s"] <= best["own_high_s"]),
        }
        ended = {name: searches[key][name] for name in ("better_probability", "ended")}
        rows.append(answer | ended | dict(zip(GROUP, key, strict=True)))
    return rows


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
            found = {"guided_s": guided.wall_s, "all_s": every.wall_s}
            found |= {"ratio": every.wall_s / guided.wall_s, "cells": len(every.cells)}
            right = sum(row["slower"] <= 0.01 or row["tied"] for row in rows)
            found |= {"groups": len(rows), "right": right}
            print(found, flush=True)
            rounds.append(found | {"groups_of": rows})
            written = datetime.now(UTC).isoformat(timespec="seconds")
            told = {"device": every.device, "written_at": written, "rounds": rounds}
            args.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
