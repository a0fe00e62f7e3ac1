"""Measures one thing again and again, planted slow-downs in between, each run by its own process.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/record_pairs.py plan --plan pairs.json
    python experiments/gpu/record_pairs.py measure --plan pairs.json --out pairs --limit-s 280

The first command needs the environment but no GPU, the second what `record_run` needs. The runs
r00, r01 and so on measure all of repeated.yaml without a slow-down. Between them, in an
order drawn by the seed, come planted-01-00 and so on: copies of which 1, 3 or 10 percent are done
twice (see planted/folders.py), and nothing else. What is written are shards below
``pairs/<run>/<sweep>/<dtype>/``, ``pairs/runs.json`` (when each run began and how long it took) and
archives of both, ``pairs/part-0.tar`` and so on.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tarfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import record_run
from planted.folders import PERCENTS, TEMPLATE, written

# What one archive holds at most, in bytes, and the fewest of them.
MOST, FEWEST = 15_000_000, 2


def main() -> None:
    """Plan, measure all runs, or measure one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("plan", "measure", "one"))
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--config", default="experiments/gpu/repeated.yaml")
    parser.add_argument("--runs", type=int, default=16, help="of the same")
    parser.add_argument("--planted", type=int, default=8, help="of each slow-down")
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--run")
    parser.add_argument("--of")
    options = parser.parse_args()
    if options.step == "plan":
        told = plans(options.config)
        runs = order(options.runs, options.planted, options.seed)
        options.plan.write_text(json.dumps({"plans": told, "runs": runs}))
    elif options.step == "measure":
        measure(options.plan, options.out, options.limit_s)
    else:
        told = {plan["run"]: plan for plan in json.loads(options.plan.read_text())["plans"]}
        one(told[options.of], options.run, options.out, time.time() + options.limit_s)


def name_of(percent: int) -> str:
    """What the plan with so many planted percent is called."""
    return f"p{percent:02}"


def planted_folder() -> Path:
    """Where the planted kernels lie; the plan and what measures it must agree."""
    from gpushmoo.core.paths import ROOT

    return ROOT / "results" / "planted"


def plans(config: str) -> list[dict[str, Any]]:
    """A plan for each of PERCENTS; of one with a slow-down the sweeps of its kernel alone."""
    import yaml

    sweeps = yaml.safe_load(Path(config).read_text(encoding="utf-8"))["kernels"]
    planted = [n for n, told in sweeps.items() if told.get("kernel", n) == TEMPLATE.name]
    made = []
    for percent, folder in written(planted_folder()).items():
        own: dict[str, Any] = {"kernel_folders": [str(folder.parent)]}
        own |= {"only": planted} if percent else {}
        made.append({**record_run.planned(config, **own), "run": name_of(percent)})
    return made


def order(runs: int, planted: int, seed: int) -> list[tuple[str, str]]:
    """Names of runs and of their plans: the planted ones, shuffled, spread over those without."""
    among = [
        (f"planted-{percent:02}-{i:02}", name_of(percent))
        for percent in PERCENTS[1:]
        for i in range(planted)
    ]
    random.Random(seed).shuffle(among)
    ordered: list[tuple[str, str]] = []
    for i in range(runs):
        ordered.append((f"r{i:02}", name_of(0)))
        ordered += among[len(among) * i // runs : len(among) * (i + 1) // runs]
    return ordered


def measure(plan: Path, out: Path, limit_s: float) -> None:
    """All runs in their order; none is begun that would end after `limit_s`."""
    begin = time.monotonic()
    planned = json.loads(plan.read_text())
    written(planted_folder())
    record_run.build_all(planned["plans"], out)
    told: list[dict[str, Any]] = []
    longest_s = 0.0
    for run, of in planned["runs"]:
        began_s = time.monotonic() - begin
        if began_s + longest_s > limit_s:
            print(f"{began_s:.0f} s: the time is over before {run}", flush=True)
            break
        command = [sys.executable, __file__, "one", "--plan", plan, "--out", out]
        done = subprocess.run(
            [*map(str, command), "--run", run, "--of", of], capture_output=True, encoding="utf-8"
        )
        seconds = time.monotonic() - begin - began_s
        longest_s = max(longest_s, seconds)
        told.append({"run": run, "of": of, "began_s": began_s, "seconds": seconds})
        print(f"{run}: {seconds:.1f} s, status {done.returncode}", flush=True)
        if done.returncode or "failed" in done.stdout:
            print(done.stdout, done.stderr, flush=True)
    (out / "runs.json").write_text(json.dumps(told, indent=1))
    pack(out, [entry["run"] for entry in told])


def one(plan: dict[str, Any], run: str, out: Path, until: float) -> None:
    """All shards of a run; their processes start together, and the device's lock orders them."""
    # Once for all of them: it is most of what starting takes, and opens no device.
    import_module("gpushmoo.measuring.job")
    todo = [(run, plan["run"], *told) for told in plan["shards"]]
    record_run.measure_all(todo, out, until, len(todo), "fork")


def pack(out: Path, runs: list[str]) -> None:
    """The runs in their order, in archives of about the same size, of MOST bytes at most."""
    sizes = [sum(f.stat().st_size for f in (out / run).rglob("*.parquet")) for run in runs]
    count = max(FEWEST, -(-sum(sizes) // MOST))
    for i in range(count):
        with tarfile.open(out / f"part-{i}.tar", "w") as archive:
            archive.add(out / "runs.json", arcname="runs.json")
            for place, run in enumerate(runs):
                if sum(sizes[:place]) * count // max(1, sum(sizes)) == i:
                    archive.add(out / run, arcname=run)


if __name__ == "__main__":
    main()
