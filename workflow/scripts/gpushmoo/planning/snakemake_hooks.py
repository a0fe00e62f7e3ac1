"""The one place that touches Snakemake's workflow object.

Of `onstart`, prefixes of modules, limits of the scheduler, forced files and the start of scripts
Snakemake has no public interface for plugins, so pyproject.toml bounds its version, and runs in
tests/workflow show each.
"""

from __future__ import annotations

import atexit
import io
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.common.configfile import load_configfile
from snakemake.path_modifier import PathModifier
from snakemake.script import PythonScript
from snakemake.settings.types import DeploymentMethod, Quietness
from snakemake_interface_logger_plugins.common import LogEvent

from ..core.backends import AUTO, BACKENDS, Backend
from ..core.errors import HostError, NoDeviceError
from ..core.news import heartbeat
from ..core.paths import child_environment
from ..core.readable import typed
from ..core.run_plan import PLAN_FILE
from ..core.schema import Status
from ..devices.base import functions_of
from ..devices.builds import read_build
from ..devices.select import probe
from ..measuring import client
from ..measuring.client import ADDRESS
from ..stages import ONE_THREAD, STAGE_ADDRESS
from ..storage.room import unwritten
from ..storage.store import BadParquetError, check_table, is_whole, open_shard
from ..storage.wholefile import DamagedFileError, read_summed, write_json
from . import RUN_FOLDER
from .config import default_config, merged, refuse_without_otava
from .config_schema import ConfigError
from .flow import MEASURING, Flow
from .sweeps import size_sentence

# The script of the rule that compiles a kernel and element type.
BUILDING = "build_kernel.py"
# Runs the scripts of jobs.
STAGES = "gpushmoo.stages"


def load_flow(config: Mapping[str, Any], workflow: Any) -> Flow:
    """The run of a checked configuration; only the user's own process asks a device."""
    plain, given = default_config(), _given(config, workflow)
    for part, folder in given:
        plain = merged(plain, part, folder)
    shown = plain["dataset"] is not None or plain["before"] is not None
    asks = plain["backend"] == AUTO and not shown
    if asks and _plans_jobs(workflow) and _on_cluster(workflow):
        named = " or ".join(f"backend={name}" for name in BACKENDS)
        raise ValueError(
            "backend: auto asks the host on which Snakemake starts, and the jobs run elsewhere; "
            f"name what the nodes have, as --config {named} does."
        )
    results = _results(workflow)
    try:
        if asks and _plans_jobs(workflow):
            # Runtimes keep there what they compile.
            refuse_unwritable(results)
        said = sys.stderr if workflow.is_main_process else io.StringIO()
        with heartbeat(said, "gpushmoo: still looking through the combinations of the sweeps"):
            flow = Flow(plain, _plans_jobs(workflow), results)
    except HostError as err:
        raise ValueError(str(err)) from err
    except NoDeviceError as err:
        raise ValueError(f"backend: {err}") from err
    if workflow.is_main_process and (told := os.environ.get(RUN_FOLDER)):
        Path(told).write_text(str(flow.results.resolve()), encoding="utf-8")
    if workflow.is_main_process and flow.measures:
        # Before the graph of jobs is made, which takes minutes where there are very many.
        with heartbeat(sys.stderr, "gpushmoo: still counting the cells", first_s=3.0):
            size = size_sentence(flow.sweeps_here, flow.choice.backend)
        for text in filter(None, (size, flow.sizes_here)):
            print(f"gpushmoo: {text}", file=sys.stderr)
        own = {name for part, _ in given for name in part.get("kernels") or ()}
        if (wanted := own & set(flow.config.sweeps)) and (others := set(flow.config.sweeps) - own):
            print(
                f"gpushmoo: the default configuration's own sweeps are among them ({len(others)}); "
                f"'only: [{', '.join(sorted(wanted))}]' leaves them out.",
                file=sys.stderr,
            )
    return flow


def _given(config: Mapping[str, Any], workflow: Any) -> list[tuple[Mapping[str, Any], Path]]:
    """The configuration's parts without the defaults, with their folders; the last one wins."""
    here, settings = Path.cwd(), workflow.config_settings
    if workflow.modifier.skip_configfile:
        return [(typed(config), here)]
    files = [(load_configfile(path), Path(path).parent) for path in settings.configfiles]
    # Of `--config 'measure={repeats: 2}'` Snakemake makes texts.
    return [*files, (typed(settings.config), here)]


def _results(workflow: Any) -> Path:
    """The folder of all runs, with the prefix of a workflow that imports the rules.

    All paths of the rules come from the Flow, and so does the prefix: Snakemake, which would prefix
    inputs and outputs but no parameters, is kept from doing so.
    """
    modifier = workflow.modifier
    results = modifier.path_modifier.replace_prefix("results/")
    modifier.path_modifier = PathModifier(None, None, workflow)
    return Path(results)


def limit_gpus(flow: Flow, workflow: Any) -> None:
    """Let two measuring jobs for each claimed device run at once on this host.

    Without a total, Snakemake ignores ``resources: gpu=1`` on the host itself; a total of the user
    (``--resources gpu=2``) stays. A lock admits one shard to a device; the second job has its
    process ready when the device gets free.
    """
    backend = flow.gpu_backend
    if backend is None or not _plans_jobs(workflow) or _on_cluster(workflow):
        return
    if "gpu" not in workflow.global_resources:
        # Not 0 without any device: of 0 a job would claim nothing, and not be refused.
        workflow.register_resource("gpu", _jobs_at_once(flow))


def tell_what_matters(flow: Flow, workflow: Any) -> None:
    """Leave jobs' numbers and most steps to the log file, as measuring jobs print what matters.

    On a cluster all is told: a job that the scheduler has ended prints nothing. Where nothing is to
    be done, the last run's closing lines are printed again.
    """
    quiet: set[Quietness] = workflow.output_settings.quiet or set()
    if Quietness.RULES not in quiet or _on_cluster(workflow):
        quiet.discard(Quietness.RULES)
        return
    closing = Path(flow.path("summary", "verdict.txt"))

    def matters(record: logging.LogRecord) -> bool:
        told: dict[str, Any] = vars(record)
        if (event := told.get("event")) == LogEvent.PROGRESS:
            # Twenty of all steps.
            done, total = 20 * told["done"], told["total"]
            return bool(done // total > (done - 20) // total)
        if record.msg == NOTHING_TO_BE_DONE_MSG and closing.exists():
            asked = str(closing) in (str(file) for job in workflow.dag.jobs for file in job.output)
            record.msg += f"\n{read_summed(closing).decode().rstrip()}" if asked else ""
        of_job = event in (LogEvent.JOB_STARTED, LogEvent.JOB_FINISHED)
        return not of_job and record.msg != "Select jobs to execute..."

    for handler in workflow.logger_manager.logger.handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.addFilter(matters)


def _plans_jobs(workflow: Any) -> bool:
    """Whether this is the process that the user started, and it does more than lint.

    While rules are read, linting shows only in that Snakemake does not look at environment
    variables.
    """
    return bool(workflow.is_main_process and workflow.check_envvars)


def _on_cluster(workflow: Any) -> bool:
    """Whether jobs run on other hosts: only a cluster's executor has a number of nodes."""
    return workflow.resource_settings.nodes is not None


def check_at_start(flow: Flow, workflow: Any) -> None:
    """Have `start_run` called before the first job starts.

    Snakemake passes over ``onstart:`` of rules that another workflow imports. That one's own may
    stand before or after.
    """
    rules, register = frozenset(workflow.modifier.rules), workflow.onstart

    def with_ours(theirs: Callable[[Any], None]) -> Callable[[Any], None]:
        def both(log: Any) -> None:
            if workflow.is_main_process:
                jobs = [job for job in workflow.dag.needrun_jobs() if job.rule in rules]
                start_run(flow, workflow, jobs)
            theirs(log)

        return both

    workflow._onstart = with_ours(workflow._onstart)
    workflow.onstart = lambda theirs: register(with_ours(theirs))


def start_run(flow: Flow, workflow: Any, jobs: Sequence[Any]) -> None:
    """Check folder, device and programs, write the plan, start servers. Raises SystemExit."""
    try:
        refuse_unwritable(flow.results)
        if workflow.local_exec and any(job.resources.get("gpu", 0) for job in jobs):
            refuse_without_device(flow)
        if flow.config.earlier and any(job.rule.name.endswith("history") for job in jobs):
            refuse_without_otava(flow.config.earlier["otava"])
        if flow.measures:
            # Jobs that outlived an earlier run see by it what is planned now.
            write_json(Path(flow.path(PLAN_FILE)), flow.plan.as_plain())
    except OSError as err:
        raise SystemExit(f"gpushmoo: {unwritten(flow.path(PLAN_FILE), err)}") from None
    except (ValueError, NoDeviceError) as err:
        raise SystemExit(f"gpushmoo: {err}") from None
    outs: dict[int, list[str]] = {}
    for job in jobs:
        if "shard" in job.rule.wildcard_names:
            repeat = int(job.wildcards_dict.get("repeat", 1))
            outs.setdefault(repeat, []).append(os.path.abspath(job.output[0]))
    if outs and workflow.local_exec and not _in_environments(workflow):
        start_measuring_servers(_jobs_at_once(flow), outs, flow.gpu_backend)
    served = [job for job in jobs if _has_script(job.rule) and not job.resources.get("gpu")]
    # A single script imports all the same.
    if len(served) > 1 and not _in_environments(workflow):
        builds = any(job.rule.script.endswith(BUILDING) for job in served)
        start_script_server(flow if builds else None)
        have_scripts_served({job.rule.name for job in served})
    tell_noted(flow, jobs)
    start_jobs_when_ready(workflow)


def refuse_unwritable(results: Path) -> None:
    """Raise ConfigError where the run's folder cannot be written to."""
    folder = next(p for p in (results, *results.parents) if p.exists())
    if not os.access(folder, os.W_OK):
        raise ConfigError(
            f"'{folder}' cannot be written to (read-only, or another user's); nothing "
            "was started: make it writable, or choose another name by the key 'run'."
        )


def refuse_without_device(flow: Flow) -> None:
    """Raise ConfigError where jobs need a GPU and there is none.

    Where there seems to be one it is not opened, which would take two seconds; should it not be
    usable, the measuring jobs say so.
    """
    backend = flow.gpu_backend
    if backend is not None and functions_of(backend).count_devices() == 0:
        try:
            probe(flow.choice)
        except NoDeviceError as err:
            raise ConfigError(f"backend: {err}") from err


def start_jobs_when_ready(workflow: Any) -> None:
    """Take Snakemake's own limit on starts of jobs (100 a second) from jobs of this host.

    Under it every job that ends leaves a timer that wakes the scheduler each second from then on,
    and the run's end waits for the last of them. A limit of the user stays.
    """
    limit = workflow.scheduler.job_rate_limiter
    is_default = limit is not None and (limit.max_jobs, limit.timespan) == (100, 1)
    if is_default and not _on_cluster(workflow):
        workflow.scheduler.job_rate_limiter = None


def job_python(workflow: Any) -> Callable[[Any, Any], str]:
    """The Python of the measuring jobs, as a parameter that Snakemake does not compare."""
    python = "python" if _in_environments(workflow) else sys.executable
    return lambda wildcards, output: python


def _in_environments(workflow: Any) -> bool:
    """Whether jobs run in conda environments of their own."""
    return DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method


def start_measuring_servers(
    number: int, outs: Mapping[int, Sequence[str]], backend: Backend | None = None
) -> list[subprocess.Popen[bytes]]:
    """Start so many measuring servers. `outs` are the files that jobs will write, by repeat.

    The `backend` is that of GPUs, whose libraries a process of each server imports at once.
    """
    jobs = {"backend": None if backend is None else backend.name, "outs": outs}
    return start_servers(number, MEASURING, ADDRESS, jobs)


def start_servers(
    number: int,
    program: str,
    address_name: str,
    jobs: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> list[subprocess.Popen[bytes]]:
    """Start so many servers for all clients of this process, with which they end.

    The environment variable `address_name` names their socket. The last arguments are a file with
    `jobs` and the server's number. They have more of an `environment`.
    """
    # No other user may have something measured here.
    folder = tempfile.mkdtemp(prefix="gpushmoo-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address, listed = str(Path(folder, "server")), Path(folder, "jobs.json")
    listed.write_text(json.dumps(jobs), encoding="utf-8")
    with socket.socket(socket.AF_UNIX) as listening:
        try:
            listening.bind(address)
        except OSError:  # a longer path than sockets may have: each job has its own processes
            return []
        listening.listen(64)
        fd = listening.fileno()
        servers = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", program, str(fd), str(os.getpid())),
                    *(str(listed), str(i)),
                ],
                pass_fds=(fd,),
                stdin=subprocess.DEVNULL,
                env={**child_environment(), **(environment or {})},
                # A signal from the terminal reaches a job by its client.
                start_new_session=True,
            )
            for i in range(number)
        ]
    os.environ[address_name] = address
    return servers


def start_script_server(building: Flow | None) -> None:
    """Start the server of scripts, prepared for the compiler of a run that is `building`."""
    compiler = building and {
        "backend_name": building.choice.backend,
        "opencl_runtime": building.choice.runtime,
        "cache": building.cache,
    }
    start_servers(1, STAGES, STAGE_ADDRESS, {"compiler": compiler}, ONE_THREAD)


def have_scripts_served(rules: Collection[str]) -> None:
    """Have the run's server run the scripts of these rules, unless a job claims a GPU.

    Snakemake would start a Python for each, which imports Snakemake for a third of a second and the
    packages of the script for more.
    """
    alone = PythonScript.execute_script

    def execute_script(script: PythonScript, fname: str, edit: bool = False) -> None:
        if script.rulename not in rules or script.resources.get("gpu", 0):
            alone(script, fname, edit)
            return
        script._execute_cmd(
            "exec {python:q} -I -S {client:q} {module} {address} <<<{path:q}",
            python=sys.executable,
            client=client.__file__,
            module=STAGES,
            address=STAGE_ADDRESS,
            path=os.path.abspath(fname),
        )

    PythonScript.execute_script = execute_script


def _has_script(rule: Any) -> bool:
    """Whether a job of the rule is a script in Python."""
    return rule.script is not None and rule.script.endswith(".py")


def _jobs_at_once(flow: Flow) -> int:
    """How many measuring jobs run at once on this host.

    One measures on a GPU while another makes its inputs. If the device may be the host itself,
    nothing else may run.
    """
    return _devices(flow) * (1 if flow.gpu_backend is None else 2)


def _devices(flow: Flow) -> int:
    """How many devices measure at once on this host."""
    backend = flow.gpu_backend
    if backend is None or flow.config["device"] != "all":
        return 1
    return max(1, functions_of(backend).count_devices())


def tell_noted(flow: Flow, jobs: Iterable[Any]) -> None:
    """Print which files are made for a reason that a chapter wants told."""
    made = {str(file) for job in jobs for file in job.output}
    noted = [chapter.plan.noted for chapter in flow.config.chapters.values()]
    reasons = {file: why for files in noted for file, why in files.items()}
    for reason in sorted(set(reasons.values())):
        if names := sorted(Path(f).name for f in made if reasons.get(f) == reason):
            print(f"gpushmoo: made anew, as {reason}: {', '.join(names)}.", file=sys.stderr)


def remake_products(flow: Flow, workflow: Any) -> None:
    """Give every rule of ours an input function that has faulty products made again."""
    for rule in workflow.modifier.rules:
        rule.set_input(remaking(flow, workflow, rule))


def remaking(flow: Flow, workflow: Any, rule: Any) -> Callable[[Any], list[str]]:
    """An input function that names no file and has products of `rule` made again.

    These are damaged ones, and those that the key `remeasure` names: shards with such cells, build
    files with failed versions. Snakemake calls it while it builds its graph, the only time at
    which forced files can be added. Forcing a file leaves a dry run without effect, as deleting it
    would not. Files in a storage are not looked at.
    """
    measures = "shard" in rule.wildcard_names
    builds = _has_script(rule) and rule.script.endswith(BUILDING)

    @cache
    def is_damaged(path: str) -> bool:
        fault = damage(Path(path), ends_alone=measures)
        if measures and Path(flow.dataset).exists() and not Path(path).exists():
            # Snakemake itself does not miss what only finished files were made of.
            fault = f"'{path}' is missing."
        if fault is not None:
            again = "measured" if measures else "made"
            print(f"gpushmoo: {fault} It is not used but {again} again.", file=sys.stderr)
        return fault is not None

    def no_input(wildcards: Any) -> list[str]:
        if workflow.is_main_process:
            outputs = (file.apply_wildcards(wildcards) for file in rule.output)
            paths = [str(file) for file in outputs if not file.is_storage]
            forced = {path for path in paths if is_damaged(path)}
            if measures and flow.config.remeasure:
                forced |= remeasured_shards(flow).intersection(paths)
            if builds:
                forced |= {path for path in paths if ended_as(flow.config.remeasure, Path(path))}
            workflow.dag.forcefiles.update(forced)
        return []

    return no_input


def ended_as(statuses: Collection[Status], path: Path) -> bool:
    """Whether a version in the build file `path` ended so."""
    if not statuses or not path.exists():
        return False
    try:
        targets = read_build(path).targets.values()
    except DamagedFileError:
        return False
    return any(made.status in statuses for versions in targets for made in versions.values())


@cache
def remeasured_shards(flow: Flow) -> frozenset[str]:
    """The shards with cells that the key `remeasure` names; prints their number."""
    counts = cells_ended_as(flow.config.remeasure, flow.shard_files)
    print(f"gpushmoo: {sentence(counts)}", file=sys.stderr)
    return frozenset(counts)


def cells_ended_as(
    statuses: Collection[Status], paths: Iterable[str]
) -> dict[str, Counter[Status]]:
    """Number of cells that ended so, by path of the shards that have any."""
    counts = {path: _count(statuses, Path(path)) for path in paths if Path(path).exists()}
    return {path: cells for path, cells in counts.items() if cells}


def _count(statuses: Collection[Status], path: Path) -> Counter[Status]:
    try:
        ended = open_shard(path).table().column("status").to_pylist()
    except BadParquetError:
        return Counter()
    return Counter(Status(status) for status in ended if status in statuses)


def sentence(counts: Mapping[str, Counter[Status]]) -> str:
    """What is measured again, for the terminal."""
    cells = sum(counts.values(), Counter[Status]())
    if not cells:
        return "remeasure: no cell ended so; nothing is measured again."
    parts = ", ".join(f"{n} {status}" for status, n in sorted(cells.items()))
    shards = "1 shard" if len(counts) == 1 else f"{len(counts)} shards"
    return f"remeasure: {cells.total()} cells ({parts}) in {shards} and their later repeats."


def damage(path: Path, ends_alone: bool = False) -> str | None:
    """What is wrong with a product, in one sentence; None where it is whole or missing.

    A file is read whole. With `ends_alone`, as of a shard, which may hold gigabytes, and of each
    Parquet file in a folder only both ends are looked at.
    """
    if not path.exists():
        return None
    try:
        if path.is_dir():
            for file in path.rglob("[!.]*.*"):
                if file.stat().st_size == 0 or (file.suffix == ".parquet" and not is_whole(file)):
                    name = file.relative_to(path)
                    raise BadParquetError(path, f"is not whole: '{name}' is cut off.")
        elif not ends_alone:
            (check_table if path.suffix == ".parquet" else read_summed)(path)
        elif not is_whole(path):
            raise BadParquetError(path, "is not a whole Parquet file (truncated or foreign).")
    except DamagedFileError as err:
        return str(err)
    return None
