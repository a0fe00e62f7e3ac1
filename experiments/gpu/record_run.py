"""Measures the sweeps of configuration files on a machine that has no Snakemake.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/record_run.py plan --config machine judge --plan plan.json
    python experiments/gpu/record_run.py measure --plan plan.json --out cells --limit-s 430

The first command needs the environment but no GPU, the second only CuPy, NumPy, PyArrow and NVRTC.
What it writes are the shards that a run of these configurations would write, below
``cells/<run>/<sweep>/<dtype>/``, all first repeats before the second ones. After `limit-s` seconds
no further shard is begun; a shard that fails costs no other. Several processes are started at a
time, so that one starts while another measures: the device's lock keeps their times apart. With
``plan --backend opencl`` it is for this machine's own OpenCL device.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from tempfile import gettempdir
from typing import Any

BUILDS_AT_ONCE, SHARDS_AT_ONCE = 6, 3
# How often, and how long, a second repeat waits for the first one's file.
WAIT_S, WAITS = 0.2, 500


def main() -> None:
    """Plan, or measure what was planned."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("plan", "measure"))
    parser.add_argument("--config", nargs="+", help="names in config/ without .yaml, or files")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit-s", type=float, default=3600.0)
    options = parser.parse_args()
    if options.step == "plan":
        plans = [planned(name, options.backend) for name in options.config]
        options.plan.write_text(json.dumps(plans))
    else:
        measure(json.loads(options.plan.read_text()), options.out, options.limit_s)


def planned(name: str, backend: str = "cuda", **own: Any) -> dict[str, Any]:
    """The builds and shards of one configuration file, in plain values.

    `name` is the file's, or that of one in config/; `own` are keys that are merged over it.
    """
    import yaml
    from gpushmoo.core.backends import AUTO, BACKENDS
    from gpushmoo.core.paths import ROOT
    from gpushmoo.devices.select import DeviceChoice, resolve
    from gpushmoo.planning.config import default_config, load_config, merged
    from gpushmoo.planning.plan import build_params, plan_shards, run_plan

    file = Path(name) if name.endswith(".yaml") else ROOT / f"config/{name}.yaml"
    given = yaml.safe_load(file.read_text(encoding="utf-8"))
    runtime = AUTO
    if BACKENDS[backend].runtimes:
        runtime = resolve(DeviceChoice(backend, 0, AUTO, Path(gettempdir())))[0].runtime
    own = {**own, "backend": backend}
    whole = merged(merged(default_config(), given, file.parent), own, Path())
    config = load_config(whole, ROOT, Path(gettempdir()))
    plan = run_plan(config, backend, runtime)
    where = {"device": config["device"], "opencl_runtime": runtime, "cuda_arch": None}
    builds = [
        (sweep, dtype, build_params(told, dtype, backend, **where))
        for sweep, told in config.sweeps.items()
        for dtype in told.dtypes
    ]
    shards = [
        (
            s.sweep,
            s.dtype,
            s.name,
            s.repeat,
            plan.sweeps[s.sweep][s.dtype].shard_params(s.index, s.repeat),
        )
        for s in plan_shards(config)
    ]
    return {"run": Path(name).stem, "builds": builds, "shards": shards}


def measure(plans: list[dict[str, Any]], out: Path, limit_s: float) -> None:
    """Build and measure all that was planned, and say how each ended."""
    until = time.time() + limit_s
    build_all(plans, out)
    todo = [(plan["run"], plan["run"], *told) for plan in plans for told in plan["shards"]]
    measure_all(sorted(todo, key=lambda told: told[5]), out, until)


def build_all(plans: list[dict[str, Any]], out: Path) -> None:
    """Compile for all plans at once, and say how each ended."""
    cache_of(out).mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(BUILDS_AT_ONCE, mp_context=get_context("spawn")) as pool:
        tasks = {
            pool.submit(build, out, plan["run"], *told): (plan["run"], *told[:2])
            for plan in plans
            for told in plan["builds"]
        }
        for line in ended(tasks):
            print("build", line, flush=True)


def measure_all(
    todo: list[tuple[Any, ...]],
    out: Path,
    until: float,
    at_once: int = SHARDS_AT_ONCE,
    how: str = "spawn",
) -> None:
    """Measure shards (run, the run that has its builds, and as planned), until that time.

    `how` processes start, so many at once; forks have what this process has imported.
    """
    begin = time.monotonic()
    with ProcessPoolExecutor(at_once, mp_context=get_context(how)) as pool:
        tasks = {
            pool.submit(measured, out, until, (i + 1, len(todo)), *told): (told[0], *told[2:6])
            for i, told in enumerate(todo)
        }
        for line in ended(tasks):
            print(f"{time.monotonic() - begin:.0f} s", line, flush=True)


def cache_of(out: Path) -> Path:
    """Where device runtimes keep what they compile."""
    return out / "cache"


def ended(tasks: dict[Future[str], Any]) -> Iterator[str]:
    """What each task says at its end, or what went wrong with it."""
    for task in as_completed(tasks):
        try:
            yield f"{tasks[task]}: {task.result()}"
        except Exception as err:
            yield f"{tasks[task]}: failed, {err!r}"


def build(out: Path, run: str, sweep: str, dtype: str, params: Any) -> str:
    """Compile one sweep and type; what the compiler said."""
    from gpushmoo.devices.building import build_kernel

    said, file = io.StringIO(), build_file(out, run, sweep, dtype)
    file.parent.mkdir(parents=True, exist_ok=True)
    build_kernel(params, cache_of(out), file, said, "the log", 4)
    return said.getvalue().strip() or "built"


def build_file(out: Path, run: str, sweep: str, dtype: str) -> Path:
    """Where the build of a sweep and type lies."""
    return out / "builds" / run / sweep / f"{dtype}.json"


def measured(
    out: Path,
    until: float,
    place: tuple[int, int],
    run: str,
    built_as: str,
    sweep: str,
    dtype: str,
    name: str,
    repeat: int,
    params: Any,
) -> str:
    """Measure one shard; the last line that its job prints."""
    from gpushmoo.measuring.job import ShardTask, measure_shard
    from gpushmoo.storage.store import write_parquet

    if time.time() > until:
        return "left out, the time is over"
    file = out / run / sweep / dtype / f"{name}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    first = None
    if repeat > 1:
        first = file.with_name(file.name.replace(f".repeat-{repeat}", ""))
        for _ in range(WAITS):
            if first.is_file():
                break
            time.sleep(WAIT_S)
    said, built = io.StringIO(), build_file(out, built_as, sweep, dtype)
    cache = cache_of(out)
    task = ShardTask(params, place, cache, first, built, worker_log=out / "worker.log")
    shard = measure_shard(task, said)
    write_parquet(shard.table, file, shard.metadata)
    return said.getvalue().strip().splitlines()[-1]


if __name__ == "__main__":
    main()
