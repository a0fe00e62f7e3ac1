"""Measures one thing again and again, planted slow-downs in between, each run by its own process.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/record_pairs.py plan --plan pairs.pickle
    python experiments/gpu/record_pairs.py measure --plan pairs.pickle --out pairs --limit-s 280

The first command needs the environment but no GPU, the second only CuPy, NumPy, PyArrow and NVRTC:
no Snakemake, whose start would take longer than a run. The runs r00, r01 and so on measure all of
repeated.yaml without a slow-down. Between them, in an order drawn by the seed, come planted-01-00
and so on: copies of which 1, 3 or 10 percent are done twice (planted/copy_planted), and nothing
else. What is written are the shards that a run of the configuration would write, below
``pairs/<run>/<sweep>/<dtype>/``, and ``pairs/runs.json``: when each run began and how long it took.
With ``plan --backend opencl`` it is for this machine's own OpenCL device.
"""

import argparse
import io
import json
import pickle
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from tempfile import gettempdir
from typing import Any

# Plans, by how many percent of the kernel's tiles are done twice.
PLANS = {percent: f"p{percent:02}" for percent in (0, 1, 3, 10)}
TEMPLATE = Path(__file__).with_name("planted") / "copy_planted"
BUILDS_AT_ONCE = 6


def main() -> None:
    """Plan, measure all runs, or measure one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("plan", "measure", "one"))
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--config", type=Path, default=Path("experiments/gpu/repeated.yaml"))
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--runs", type=int, default=16, help="of the same")
    parser.add_argument("--planted", type=int, default=8, help="of each slow-down")
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--run")
    parser.add_argument("--of")
    options = parser.parse_args()
    if options.step == "plan":
        told = plans(options.config, options.backend)
        runs = order(options.runs, options.planted, options.seed)
        write_plan(options.plan, {"plans": told, "runs": runs})
    elif options.step == "measure":
        measure(options.plan, options.out, options.limit_s)
    else:
        told = {plan["run"]: plan for plan in read_plan(options.plan)["plans"]}
        one(told[options.of], options.run, options.out, time.time() + options.limit_s)


def write_plan(file: Path, plan: dict[str, Any]) -> None:
    """Write the plans and the order of the runs, for `read_plan` of the same version."""
    file.write_bytes(pickle.dumps(plan))


def read_plan(file: Path) -> dict[str, Any]:
    """Return what `write_plan` has written."""
    plan: dict[str, Any] = pickle.loads(file.read_bytes())
    return plan


def write_planted() -> dict[int, Path]:
    """Write the kernel's folder for each of PLANS, each in a separate folder of results/planted.

    The plan and what measures it must agree on the place.
    """
    from gpushmoo.core.paths import ROOT

    made = {p: ROOT / "results/planted" / name / TEMPLATE.name for p, name in PLANS.items()}
    for percent, folder in made.items():
        ours = shutil.ignore_patterns("__pycache__")
        shutil.copytree(TEMPLATE, folder, ignore=ours, dirs_exist_ok=True)
        text = (TEMPLATE / "workload.py").read_text(encoding="utf-8")
        assert text.count("PERCENT = 0\n") == 1
        changed = text.replace("PERCENT = 0\n", f"PERCENT = {percent}\n")
        (folder / "workload.py").write_text(changed, encoding="utf-8")
    return made


def plans(config: Path, backend: str) -> list[dict[str, Any]]:
    """A plan for each of PLANS; of one with a slow-down the sweeps of its kernel alone."""
    import yaml

    given = yaml.safe_load(config.read_text(encoding="utf-8"))
    planted = [n for n, told in given["kernels"].items() if told.get("kernel", n) == TEMPLATE.name]
    made = []
    for percent, folder in write_planted().items():
        own: dict[str, Any] = {"kernel_folders": [str(folder.parent)], "backend": backend}
        own |= {"only": planted} if percent else {}
        made.append({"run": PLANS[percent], **planned(given, own, config.parent)})
    return made


def planned(given: dict[str, Any], own: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Builds and shards of the configuration `given`, over which `own` is merged.

    Paths of `given` are relative to `folder`.
    """
    from gpushmoo.core.backends import AUTO, BACKENDS
    from gpushmoo.core.paths import ROOT
    from gpushmoo.devices.select import DeviceChoice, resolve
    from gpushmoo.planning.config import default_config, load_config, merged
    from gpushmoo.planning.plan import CompilerChoice, build_job, plan_shards, run_plan

    backend, runtime, cache = own["backend"], AUTO, Path(gettempdir())
    if BACKENDS[backend].runtimes:
        runtime = resolve(DeviceChoice(backend, 0, AUTO, cache))[0].runtime
    whole = merged(merged(default_config(), given, folder), own, Path())
    config = load_config(whole, ROOT, cache)
    plan = run_plan(config, backend, runtime)
    compiler = CompilerChoice(
        backend=backend,
        device=config.settings.device,
        opencl_runtime=runtime,
        compile_timeout_s=config.settings.measure.compile_timeout_s,
    )
    builds = [
        (sweep, dtype, build_job(told, dtype, compiler))
        for sweep, told in config.sweeps.items()
        for dtype in told.dtypes
    ]
    shards = []
    for s in plan_shards(config):
        job = plan.sweeps[s.sweep][s.dtype].job.part(s.index, s.repeat)
        shards.append((s.sweep, s.dtype, s.name, s.repeat, job))
    return {"builds": builds, "shards": shards}


def order(runs: int, planted: int, seed: int) -> list[tuple[str, str]]:
    """Names of runs and of their plans: the planted ones, shuffled, spread over those without."""
    _, *slow = PLANS.items()
    among = [(f"planted-{p:02}-{i:02}", name) for p, name in slow for i in range(planted)]
    random.Random(seed).shuffle(among)
    ordered: list[tuple[str, str]] = []
    for i in range(runs):
        ordered.append((f"r{i:02}", PLANS[0]))
        ordered += among[len(among) * i // runs : len(among) * (i + 1) // runs]
    return ordered


def measure(plan: Path, out: Path, limit_s: float) -> None:
    """All runs in their order; none is begun that would end after `limit_s`."""
    begin = time.monotonic()
    planned = read_plan(plan)
    write_planted()
    cache_of(out).mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(BUILDS_AT_ONCE, mp_context=get_context("spawn")) as pool:
        builds = [(p["run"], *told) for p in planned["plans"] for told in p["builds"]]
        for line in ended({pool.submit(build, out, *told): told[:3] for told in builds}):
            print("build", line, flush=True)
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


def one(plan: dict[str, Any], run: str, out: Path, until: float) -> None:
    """Measure all shards of a run, one after another, with a separate process for each repeat."""
    from gpushmoo.measuring.process import Workers

    shards, name = plan["shards"], plan.get("built_as", plan["run"])
    workers = Workers(keep=True)
    for repeat in sorted({shard[3] for shard in shards}):
        for i, shard in enumerate(shards, 1):
            if shard[3] != repeat:
                continue
            try:
                line = measured(out, until, (i, len(shards)), run, name, shard, workers)
            except Exception as err:
                line = f"failed, {err!r}"
            print(f"{shard[:4]}: {line}", flush=True)
        workers.end_repeat(repeat)


def ended(tasks: dict[Future[str], Any]) -> Iterator[str]:
    """What each task says at its end, or what went wrong with it."""
    for task in as_completed(tasks):
        try:
            yield f"{tasks[task]}: {task.result()}"
        except Exception as err:
            yield f"{tasks[task]}: failed, {err!r}"


def cache_of(out: Path) -> Path:
    """Return the folder in which device runtimes cache compiled code."""
    return out / "cache"


def build(out: Path, run: str, sweep: str, dtype: str, job: Any) -> str:
    """Compile one sweep and type; what the compiler said."""
    from gpushmoo.devices.building import build_kernel

    said, file = io.StringIO(), build_file(out, run, sweep, dtype)
    file.parent.mkdir(parents=True, exist_ok=True)
    build_kernel(job, cache_of(out), file, said, "the log", 4)
    return said.getvalue().strip() or "built"


def build_file(out: Path, run: str, sweep: str, dtype: str) -> Path:
    """Return the path of the build file of a sweep and type."""
    return out / "builds" / run / sweep / f"{dtype}.json"


def measured(
    out: Path,
    until: float,
    place: tuple[int, int],
    run: str,
    built_as: str,
    shard: Sequence[Any],
    workers: Any,
) -> str:
    """Measure one shard; the last line that its job prints."""
    from gpushmoo.measuring.job import ShardTask, measure_shard
    from gpushmoo.storage.store import write_parquet

    if time.time() > until:
        return "left out, the time is over"
    sweep, dtype, name, repeat, job = shard
    file = out / run / sweep / dtype / f"{name}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    first = file.with_name(file.name.replace(f".repeat-{repeat}", "")) if repeat > 1 else None
    said, built = io.StringIO(), build_file(out, built_as, sweep, dtype)
    task = ShardTask(
        job,
        place,
        cache_of(out),
        first,
        built,
        worker_log=out / "worker.log",
        workers=workers,
    )
    found = measure_shard(task, said)
    write_parquet(found.table, file, found.metadata)
    return next(iter(said.getvalue().strip().splitlines()[-1:]), "measured")


if __name__ == "__main__":
    main()
