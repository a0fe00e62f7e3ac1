"""The one place that touches Snakemake's workflow object.

Of `onstart`, prefixes of modules, limits of the scheduler and forced files Snakemake has no public
interface for plugins, so pyproject.toml bounds its version, and runs in tests/workflow show each.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from snakemake.common.configfile import load_configfile
from snakemake.io import ancient
from snakemake.path_modifier import PathModifier
from snakemake.settings.types import DeploymentMethod, Quietness
from snakemake.utils import update_config

from ..core.backends import AUTO, BACKENDS
from ..core.errors import NoDeviceError
from ..core.paths import child_environment
from ..core.run_plan import PLAN_FILE
from ..core.schema import Status
from ..devices.base import functions_of
from ..devices.select import probe
from ..measuring.client import ADDRESS
from ..storage.store import BadParquetError, check_table, is_whole, open_shard
from ..storage.wholefile import DamagedFileError, read_summed, write_json
from .config import Part, default_config, last_said, located, refuse_without_otava, with_whole_axes
from .digest import code_digest, keep_read_code, module_digest
from .flow import MEASURING, Flow
from .sweeps import size_sentence

_YAML_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


def load_flow(config: Mapping[str, Any], workflow: Any) -> Flow:
    """Check the configuration.

    Only the process that the user started asks a device; jobs that read the Snakefile again (on a
    cluster) do not, nor does `snakemake --lint`. Raises ValueError with one sentence.
    """
    parts = _given(config, workflow)
    # `--config strict=true` arrives as a text.
    words = {k: _YAML_WORDS.get(v, v) if isinstance(v, str) else v for k, v in config.items()}
    plain = default_config()
    update_config(plain, words)
    for key in ("kernel_folders", "chapter_folders"):
        plain[key] = located(*last_said(parts, key), plain[key])
    plain = with_whole_axes(plain, [part for part, _ in parts])
    shown = plain["dataset"] is not None or plain["before"] is not None
    asks = plain["backend"] == AUTO and not shown
    if asks and _plans_jobs(workflow) and _on_cluster(workflow):
        named = " or ".join(f"backend={name}" for name in BACKENDS)
        raise ValueError(
            "backend: auto asks the host on which Snakemake starts, and the jobs run elsewhere; "
            f"name what the nodes have, as --config {named} does."
        )
    try:
        flow = Flow(plain, _plans_jobs(workflow), _results(workflow))
    except NoDeviceError as err:
        raise ValueError(f"backend: {err}") from err
    if workflow.is_main_process and flow.measures:
        # Before the graph of jobs is made, which takes minutes where there are very many.
        size = size_sentence(flow.config.sweeps, flow.choice.backend)
        print(f"gpushmoo: {size}", file=sys.stderr)
    return flow


def _given(config: Mapping[str, Any], workflow: Any) -> list[Part]:
    """The parts of which the configuration is made, but for the defaults; the last one wins.

    A workflow that imports these rules may give the whole of it.
    """
    here, settings = Path.cwd(), workflow.config_settings
    if workflow.modifier.skip_configfile:
        return [(config, here)]
    files = [(load_configfile(path), Path(path).parent) for path in settings.configfiles]
    return [*files, (settings.config, here)]


def _results(workflow: Any) -> Path:
    """Where the runs' folders lie, with the prefix that a workflow may give that imports the rules.

    All of the rules' paths come from the Flow, and so does the prefix. Snakemake gives it to inputs
    and outputs alone, and to parameters not: it is kept from doing so.
    """
    modifier = workflow.modifier
    results = modifier.path_modifier.replace_prefix("results/")
    modifier.path_modifier = PathModifier(None, None, workflow)
    return Path(results)


def limit_gpus(flow: Flow, workflow: Any) -> None:
    """Let two measuring jobs for each device that they claim run at once on this host.

    Snakemake ignores ``resources: gpu=1`` on the host itself unless the total is told; a total that
    the user gives (``--resources gpu=2``) stays. The lock lets one shard on a device; the other job
    has its process ready when the device gets free, as several may at once.
    """
    backend = flow.gpu_backend
    if backend is None or not _plans_jobs(workflow) or _on_cluster(workflow):
        return
    if "gpu" not in workflow.global_resources:
        # Without any device, too: of 0 a job would claim nothing, and not be refused.
        workflow.register_resource("gpu", 2 * _devices(flow))


def tell_lost_jobs(workflow: Any) -> None:
    """Have Snakemake say on a cluster which job was lost and why.

    The default profile silences the rules, since measuring jobs say all that is worth reading. A
    job that the scheduler has ended says nothing here, and Snakemake's own word would be silenced.
    """
    quiet: set[Quietness] | None = workflow.output_settings.quiet
    if _on_cluster(workflow) and quiet is not None:
        quiet.discard(Quietness.RULES)


def _plans_jobs(workflow: Any) -> bool:
    """Whether this is the process that the user started, and not one that only lints.

    Of both Snakemake says nothing else while it reads the rules: it lints without a look at the
    environment's variables.
    """
    return bool(workflow.is_main_process and workflow.check_envvars)


def _on_cluster(workflow: Any) -> bool:
    """Whether jobs run on other hosts.

    Which executor runs them is not known while the rules are read, and a total that is set later is
    not kept to. But only a cluster's has a number of nodes (``--jobs``).
    """
    return workflow.resource_settings.nodes is not None


def check_at_start(flow: Flow, workflow: Any) -> None:
    """Have the folder and the device looked at, and the plan written, before the first job starts.

    Snakemake passes over ``onstart:`` of rules that another workflow imports. That one's own may
    stand before or after.
    """
    rules, register = frozenset(workflow.modifier.rules), workflow.onstart

    def with_ours(theirs: Callable[[Any], None]) -> Callable[[Any], None]:
        def both(log: Any) -> None:
            refuse_unwritable(flow, workflow)
            refuse_without_device(flow, workflow, rules)
            refuse_without_program(flow, workflow, rules)
            write_plan(flow, workflow)
            serve_measuring(flow, workflow, rules)
            tell_noted(flow, workflow)
            start_jobs_when_ready(workflow)
            theirs(log)

        return both

    workflow._onstart = with_ours(workflow._onstart)
    workflow.onstart = lambda theirs: register(with_ours(theirs))


def start_jobs_when_ready(workflow: Any) -> None:
    """Take Snakemake's own limit on starts of jobs (100 a second) from jobs of this host.

    Under it every job that ends leaves a timer that wakes the scheduler each second from then on,
    and the run's end waits for the last of them. A limit that the user gives stays.
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


def serve_measuring(flow: Flow, workflow: Any, rules: Collection[Any]) -> None:
    """Start the measuring servers: one for each device that shards are measured on here."""
    if not (workflow.is_main_process and workflow.local_exec) or _in_environments(workflow):
        return
    jobs = (job for job in workflow.dag.needrun_jobs() if job.rule in rules)
    if any("shard" in job.rule.wildcard_names for job in jobs):
        start_servers(_devices(flow))


def start_servers(number: int) -> list[subprocess.Popen[bytes]]:
    """Start so many measuring servers for all clients that this process starts.

    They end with this process. Only they listen: where none is left, no client waits for one.
    """
    # No other user may have something measured here.
    folder = tempfile.mkdtemp(prefix="gpushmoo-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = str(Path(folder, "server"))
    with socket.socket(socket.AF_UNIX) as listening:
        try:
            listening.bind(address)
        except OSError:  # a longer path than sockets may have: each job has its own processes
            return []
        listening.listen(64)
        fd = listening.fileno()
        servers = [
            subprocess.Popen(
                [sys.executable, "-m", MEASURING, str(fd)],
                pass_fds=(fd,),
                stdin=subprocess.DEVNULL,
                env=child_environment(),
                # A signal from the terminal reaches a job by its client.
                start_new_session=True,
            )
            for _ in range(number)
        ]
    os.environ[ADDRESS] = address
    return servers


def _devices(flow: Flow) -> int:
    """How many devices measure at once on this host."""
    backend = flow.gpu_backend
    if backend is None or flow.config["device"] != "all":
        return 1
    return max(1, functions_of(backend).count_devices())


def refuse_without_device(flow: Flow, workflow: Any, rules: Collection[Any]) -> None:
    """Say once, before any job starts, that shards are to be measured on a device that is missing.

    Asked only when something is to be measured here, which is what jobs of the `rules` that take a
    GPU do: a report of finished shards needs no device. Where there seems to be one nothing is
    asked, which would take two seconds; should it not be usable, the measuring jobs say so. Raises
    SystemExit with one sentence.
    """
    backend = flow.gpu_backend
    if backend is None or not (workflow.is_main_process and workflow.local_exec):
        return
    if functions_of(backend).count_devices() > 0:
        return
    jobs = (job for job in workflow.dag.needrun_jobs() if job.rule in rules)
    if any(job.resources.get("gpu", 0) for job in jobs):
        try:
            probe(flow.choice)
        except NoDeviceError as err:
            raise SystemExit(f"gpushmoo: backend: {err}") from None


def refuse_without_program(flow: Flow, workflow: Any, rules: Collection[Any]) -> None:
    """Say once, before any job starts, that the program which a history needs is missing.

    Raises SystemExit with one sentence.
    """
    if flow.config.earlier is None or not workflow.is_main_process:
        return
    jobs = (job.rule for job in workflow.dag.needrun_jobs())
    if any(rule.name.endswith("history") and rule in rules for rule in jobs):
        try:
            refuse_without_otava(flow.config.earlier["otava"])
        except ValueError as err:
            raise SystemExit(f"gpushmoo: {err}") from None


def refuse_unwritable(flow: Flow, workflow: Any) -> None:
    """Say once, before any job starts, that the results' folder cannot be written to.

    Raises SystemExit with one sentence.
    """
    if not workflow.is_main_process:
        return
    folder = next(p for p in (flow.results, *flow.results.parents) if p.exists())
    if not os.access(folder, os.W_OK):
        raise SystemExit(
            f"gpushmoo: '{folder}' cannot be written to (read-only, or another user's); nothing "
            "was started: make it writable, or choose another name by the key 'run'."
        )


def write_plan(flow: Flow, workflow: Any) -> None:
    """Leave word of what is now to be measured, for jobs that outlived an earlier run.

    Raises SystemExit with one sentence when it cannot be written.
    """
    if not workflow.is_main_process or not flow.measures:
        return
    path = Path(flow.path(PLAN_FILE))
    try:
        write_json(path, flow.plan.as_plain())
    except OSError as err:
        raise SystemExit(f"gpushmoo: '{path}' could not be written ({err.strerror}).") from None


def tell_noted(flow: Flow, workflow: Any) -> None:
    """Say which files are made of those of which chapters want it said, and why."""
    jobs = workflow.dag.needrun_jobs() if workflow.is_main_process else ()
    made = {str(file) for job in jobs for file in job.output}
    reasons = {
        file: why for c in flow.config.chapters.values() for file, why in c.plan.noted.items()
    }
    for reason in sorted(set(reasons.values())):
        if names := sorted(Path(f).name for f in made if reasons.get(f) == reason):
            print(f"gpushmoo: made anew, as {reason}: {', '.join(names)}.", file=sys.stderr)


def shards_anew(flow: Flow, workflow: Any) -> Callable[[Any], list[str]]:
    """An input function for the measuring rules: names no file, has some shards made again.

    These are those with cells that the key `again` names; it is said on the terminal which and how
    many. It forces files as `remake_damaged` does.
    """

    @cache
    def asked_again() -> frozenset[str]:
        counts = cells_ended_as(flow.config.again, flow.shard_files)
        print(f"gpushmoo: {sentence(counts)}", file=sys.stderr)
        return frozenset(counts)

    def no_input(wildcards: Any) -> list[str]:
        path = flow.shard_file(wildcards)
        if flow.config.again and workflow.is_main_process and path in asked_again():
            workflow.dag.forcefiles.add(path)
        return []

    return no_input


def complete_rules(flow: Flow, workflow: Any) -> None:
    """Give every rule of ours with a script what follows from its script and name.

    The parameter ``code`` has its jobs run again: the digest of the function that the rule calls,
    or of its script, and of all code that this imports. Taken of the rule, it can miss none;
    Snakemake itself knows but the script's time. A rule that names no log gets one, and a
    benchmark, and its jobs run on this host.
    """
    for rule in workflow.modifier.rules:
        if rule.script is None:
            continue
        script = rule.basedir.join(rule.script).get_path_or_uri(secret_free=True)
        called = MEASURING if script.endswith(".sh") else rule.params.get("call", "")
        module = called.partition(":")[0]
        code = module_digest(module) if module else code_digest(Path(script).resolve())
        rule.set_params(code=code)
        if not rule.log:
            wildcards = (f"{{{name}}}" for name in sorted(rule.wildcard_names))
            stem = "-".join([rule.name.replace("_", "-"), *wildcards])
            rule.log_modifier = rule.benchmark_modifier = workflow.modifier.path_modifier
            rule.set_log(flow.path("logs", f"{stem}.log"))
            rule.benchmark = flow.path("benchmarks", f"{stem}.tsv")
            workflow.localrules(rule.name)
    keep_read_code()


def build_input(flow: Flow) -> Callable[[Any], str | list[str]]:
    """The input function of the measuring rules that names the build file.

    What changes a build file changes what is measured, so a new one measures anew. One that is
    only damaged is made again and, as an ancient() input, measures nothing. It may not always be
    ancient(): Snakemake then passes over the measuring jobs behind a build that runs again,
    whatever reason of their own they have.
    """
    is_damaged = cache(lambda path: damage(Path(path)) is not None)

    def build_file(wildcards: Any) -> str | list[str]:
        path = flow.build_file(wildcards)
        return ancient(path) if isinstance(path, str) and is_damaged(path) else path

    return build_file


def remake_damaged(flow: Flow, workflow: Any) -> None:
    """Have the damaged products of every rule of ours made again; each is named once.

    Every rule gets one more input function, which names no file. Snakemake calls it for each job,
    for some more than once, while it builds its graph, which is the only time at which the set of
    forced files exists and can still be added to (its own ``--rerun-incomplete`` does the same).
    Forcing a file, rather than deleting it, leaves a dry run without effect. What lies in a storage
    is not looked at.
    """
    for rule in workflow.modifier.rules:
        rule.set_input(_forcing(flow, workflow, rule))


def _forcing(flow: Flow, workflow: Any, rule: Any) -> Callable[[Any], list[str]]:
    """The input function of a rule that has its damaged products made again."""
    measures = "shard" in rule.wildcard_names

    @cache
    def is_damaged(path: str) -> bool:
        fault = (damage_of_shard if measures else damage)(Path(path))
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
            paths = (str(file) for file in outputs if not file.is_storage)
            workflow.dag.forcefiles.update(path for path in paths if is_damaged(path))
        return []

    return no_input


def cells_ended_as(
    statuses: Collection[Status], paths: Iterable[str]
) -> dict[str, Counter[Status]]:
    """How many cells ended with each of `statuses`, by the path of every shard that has any.

    A shard that is not there, or damaged, has none: it is measured anew for that.
    """
    counts = {path: _count(statuses, Path(path)) for path in paths if Path(path).exists()}
    return {path: cells for path, cells in counts.items() if cells}


def sentence(counts: Mapping[str, Counter[Status]]) -> str:
    """What is measured again, for the terminal."""
    cells = sum(counts.values(), Counter[Status]())
    if not cells:
        return "again: no cell ended so; nothing is measured again."
    parts = ", ".join(f"{n} {status}" for status, n in sorted(cells.items()))
    shards = "1 shard" if len(counts) == 1 else f"{len(counts)} shards"
    return f"again: {cells.total()} cells ({parts}) in {shards}, measured again with later repeats."


def _count(statuses: Collection[Status], path: Path) -> Counter[Status]:
    try:
        ended = open_shard(path).table().column("status").to_pylist()
    except BadParquetError:
        return Counter()
    return Counter(Status(status) for status in ended if status in statuses)


def damage(path: Path) -> str | None:
    """What is wrong with a product of any rule but the measuring ones, in one sentence.

    None for one that is as it was written, and for one that is not there. A file is read whole;
    of a folder both ends of each Parquet file are looked at.
    """
    if not path.exists():
        return None
    try:
        if path.is_dir():
            _glance(path)
        elif path.suffix == ".parquet":
            check_table(path)
        else:
            read_summed(path)
    except DamagedFileError as err:
        return str(err)
    return None


def _glance(folder: Path) -> None:
    for path in folder.rglob("[!.]*.*"):
        if path.stat().st_size == 0 or (path.suffix == ".parquet" and not is_whole(path)):
            name = path.relative_to(folder)
            raise BadParquetError(folder, f"is not whole: '{name}' is cut off.")


def damage_of_shard(path: Path) -> str | None:
    """As `damage`, for a shard: looks at both ends alone, since it may hold gigabytes."""
    if not path.exists() or is_whole(path):
        return None
    return f"'{path}' is not a whole Parquet file (truncated or foreign)."
