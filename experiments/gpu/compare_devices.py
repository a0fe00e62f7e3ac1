"""The same sweep on one device and on all of this host: seconds, and how many shards each took.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/compare_devices.py OUT.json --rounds 2

Whole sweeps by the command ``snakemake … cells``, in turn on one device (the others hidden) and on
all.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).resolve().parents[2]
RUN = "compare-devices"
SHAPES = {axis: {"from": 4, "to": 64, "step": 2} for axis in ("block_x", "block_y")}


def sweep_config() -> dict[str, Any]:
    """Some 13,000 valid cells in 34 groups: copies, a persistent copy, a texture and a surface."""
    base = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    full = yaml.safe_load((ROOT / "config/full.yaml").read_text())
    shapes = {"axes": SHAPES, "sizes": [4096], "cache": ["warm"]}
    kernels = {
        "copy2d_coalesced": {
            "dtypes": ["float", "double", "float3", "float4"],
            "variants": ["element"],
            "sizes": [1024, 8192],
            "cache": ["warm", "flushed"],
            "axes": SHAPES,
        },
        "tex2d_sum": shapes | {"dtypes": ["float"], "variants": ["block-point-clamp"]},
        "surf2d_memset": shapes | {"dtypes": ["float"], "variants": ["block-one"]},
        "block_eq_partition": full["kernels"]["block_eq_partition"] | {"cache": ["warm"]},
    }
    return {
        "run": RUN,
        "backend": "cuda",
        "kernels": dict.fromkeys(base["kernels"]) | kernels,
        # Parts so small that several devices share them evenly.
        "measure": base["measure"] | full["measure"] | {"repeats": 2, "cells_per_shard": 1024},
        "simulate": None,
        "chapters": None,
    }


def run(devices: list[int], config: Path) -> dict[str, Any]:
    """A whole sweep on these devices, with nothing left of the last one."""
    shutil.rmtree(ROOT / "results" / RUN, ignore_errors=True)
    command = [sys.executable, "-m", "snakemake", "--cores", "all", "--configfile", str(config)]
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, devices))}
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--", "cells"],
        cwd=ROOT,
        env={**os.environ, **visible},
        capture_output=True,
        text=True,
        check=False,
    )
    wall_s = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    cells = ROOT / "results" / RUN / "cells"
    files = [file for file in sorted(cells.rglob("*.parquet")) if ".kept" not in file.parts]
    told = [json.loads(pq.read_schema(f).metadata[b"gpushmoo"])["device"] for f in files]
    return {
        "devices": len(devices),
        "name": told[0]["name"],
        "wall_s": wall_s,
        "shards": len(files),
        "shards_by_device": sorted(
            sum(t["uuid"] == uuid for t in told) for uuid in {t["uuid"] for t in told}
        ),
        "cells": sum(pq.read_metadata(f).num_rows for f in files),
    }


def main() -> None:
    """Sweep on one device and on all in turn, and write what came out after every round."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    every = list(range(len(listed.stdout.splitlines())))
    rounds = []
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "sweep.yaml"
        config.write_text(yaml.safe_dump(sweep_config()))
        for _ in range(args.rounds):
            one, all_of_them = run(every[:1], config), run(every, config)
            ratio = all_of_them["wall_s"] / one["wall_s"]
            rounds.append({"one": one, "all": all_of_them, "ratio": ratio})
            print(rounds[-1], flush=True)
            written = datetime.now(UTC).isoformat(timespec="seconds")
            args.out.write_text(json.dumps({"written_at": written, "rounds": rounds}, indent=1))


if __name__ == "__main__":
    main()
