"""How much faster do several devices measure a sweep, and where does the rest of the time go?

    PYTHONPATH=workflow/scripts:kernels:reports/chapters \
        python experiments/benchmarks/several_devices.py --out several.json

Measures one sweep on device 0 and on all devices: by a Snakemake run up to its data set, and by two
calls of `gpushmoo.sweep` in one program. Each way has fresh processes and empty caches. The sweep
has about 34,000 cells: copies of four types at two sizes, warm and flushed, and transposes. The
block's sides are multiples of ``--step``: 4 has a quarter of the cells. The large shards of copies
begin first, so that the last ones are short. Hosts with 1, 2 and 4 devices each need a run of it.

By way and device the JSON has the shards, the seconds in which they were measured (`busy_s`), those
between shards (`between_s`), and those from the device's last shard until the last one of all
(`last_s`). `start_s` are the seconds until the first shard: imports, devices, compilers. `end_s`
are those behind the last shard: the data set. The ratio is that of the wall seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
DEVICES = ("0", "all")
RUN = "several"
# Each group of a type is a separate shard.
CELLS_PER_SHARD = 64


def main() -> None:
    """Measure all ways, or the calls on one device in this process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--sizes", type=int, nargs=2, default=[2048, 4096])
    parser.add_argument("--step", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=("run", "calls"), default=["run", "calls"])
    parser.add_argument("--devices", nargs="+", default=DEVICES)
    parser.add_argument("--calls-on", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.calls_on:
        calls(given.calls_on, given.backend, kernels(given.sizes, given.step), given.repeats)
        return
    found: dict[str, Any] = {}
    for way in given.ways:
        for device in given.devices:
            found[f"{way}, {device}"] = told = timed(way, device, given)
            print(f"{way}, device {device}: {told['wall_s']:.1f} s", file=sys.stderr)
            # A later way may not end in time.
            text = json.dumps(_record(given, found), indent=1) + "\n"
            if given.out:
                given.out.write_text(text, encoding="utf-8")
    print(text, end="")


def _record(given: argparse.Namespace, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What was found, and the ratios of wall seconds to those of the first device asked for."""
    ratios = {}
    for way in given.ways:
        first, *others = (found.get(f"{way}, {device}") for device in given.devices)
        for device, other in zip(given.devices[1:], others, strict=True):
            if first is not None and other is not None:
                ratios[f"{way}, {device}"] = first["wall_s"] / other["wall_s"]
    return {
        "date": datetime.now(UTC).isoformat("T", "seconds"),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "asked": {"sizes": given.sizes, "step": given.step, "repeats": given.repeats},
        "ratio": ratios,
        "found": found,
    }


def kernels(sizes: Sequence[int], step: int) -> dict[str, dict[str, Any]]:
    """What is swept, by kernel; the small one is the last."""
    sides = {"from": step, "to": 64, "step": step}
    both = {"sizes": list(sizes), "cache": ["warm", "flushed"]}
    return {
        "copy2d_coalesced": {
            "dtypes": ["float", "double", "float3", "float4"],
            "variants": ["element", "tile32"],
            "axes": {"block_x": sides, "block_y": sides},
            **both,
        },
        "transpose": {"dtypes": ["float", "double"], "variants": ["naive", "tile"], **both},
    }


def timed(way: str, device: str, given: argparse.Namespace) -> dict[str, Any]:
    """Measure in a fresh process and an empty folder."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        asked = kernels(given.sizes, given.step)
        if way == "run":
            config = {
                "run": RUN,
                "backend": given.backend,
                "device": device if device == "all" else int(device),
                "only": [*asked],
                "kernels": asked,
                "measure": {"repeats": given.repeats, "cells_per_shard": CELLS_PER_SHARD},
            }
            (place / "several.json").write_text(json.dumps(config))
            target = f"results/{RUN}/dataset"
            command = ["-m", "gpushmoo", "run", "several.json", "--", target]
        else:
            command = [str(HERE), "--calls-on", device, "--backend", given.backend]
            command += ["--sizes", *map(str, given.sizes)]
            command += ["--step", str(given.step), "--repeats", str(given.repeats)]
        environment = {**os.environ, "XDG_CACHE_HOME": str(place / "cache")}
        began = time.time()
        with (place / "printed").open("wb") as printed:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=place,
                env=environment,
                stdout=printed,
                stderr=subprocess.STDOUT,
                check=False,
            )
        ended = time.time()
        if done.returncode:
            sys.exit((place / "printed").read_text(errors="replace")[-4000:])
        return figures(place.rglob("cells/*/*/*.parquet"), began, ended)


def calls(device: str, backend: str, asked: Mapping[str, Any], repeats: int) -> None:
    """Sweep the kernels in this process; the shards are saved in the working directory."""
    from gpushmoo import sweep
    from gpushmoo.core.paths import KERNELS

    where: Any = {"backend": backend, "device": device if device == "all" else int(device)}
    for kernel, what in asked.items():
        sweep(KERNELS / kernel, repeats=repeats, **where, **what).save(kernel)


def figures(files: Iterable[Path], began: float, ended: float) -> dict[str, Any]:
    """Return how the time was spent: each shard's file was written when the shard ended."""
    from gpushmoo.storage.store import read_shard

    cells, statuses = 0, dict[str, int]()
    spans: dict[str, list[tuple[float, float]]] = {}
    for file in files:
        table, metadata = read_shard(file)
        took_s, end = metadata["measuring"]["seconds"], file.stat().st_mtime
        spans.setdefault(metadata["device"]["uuid"], []).append((end - took_s, end))
        if metadata["params"]["repeat"] == 1:
            cells += len(table)
            for status in table.column("status").to_pylist():
                statuses[status] = statuses.get(status, 0) + 1
    every = [span for mine in spans.values() for span in mine]
    last = max(end for _, end in every)
    return {
        "wall_s": ended - began,
        "start_s": min(begin for begin, _ in every) - began,
        "end_s": ended - last,
        "cells": cells,
        "statuses": statuses,
        "shards": len(every),
        "shard_s": {
            "median": statistics.median(end - begin for begin, end in every),
            "most": max(end - begin for begin, end in every),
        },
        "devices": {uuid: of_device(spans[uuid], last) for uuid in sorted(spans)},
    }


def of_device(spans: Sequence[tuple[float, float]], last: float) -> dict[str, Any]:
    """Shards and seconds of a device; `last` is the moment at which the last one of all ended."""
    ordered = sorted(spans)
    gaps = [begin - end for (_, end), (begin, _) in pairwise(ordered)]
    return {
        "shards": len(ordered),
        "busy_s": sum(end - begin for begin, end in ordered),
        "between_s": sum(gaps),
        "longest_gaps_s": sorted(gaps, reverse=True)[:4],
        "last_s": last - ordered[-1][1],
    }


if __name__ == "__main__":
    main()
