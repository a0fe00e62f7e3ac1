"""Start a run: read its configuration, limit the use of GPUs, and start its servers."""

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
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from snakemake.common.configfile import load_configfile
from snakemake_interface_logger_plugins.common import LogEvent

from ..core.backends import AUTO, BACKENDS, Backend
from ..core.errors import REFUSALS, ConfigError, HostError, NoDeviceError
from ..core.news import heartbeat
from ..core.paths import child_environment
from ..core.readable import read_mapping, typed
from ..core.run_plan import PLAN_FILE
from ..devices.base import functions_of
from ..devices.select import probe
from ..measuring.client import ADDRESS
from ..stages import ONE_THREAD, STAGE_ADDRESS, STAGES
from ..storage.room import unwritten
from ..storage.wholefile import read_complete, write_json
from . import RUN_FOLDER
from .again import BUILDING
from .config import default_config, merged
from .flow import MEASURING, Flow
from .inside_snakemake import NOTHING_TO_DO, Inside, Job
from .sweeps import size_sentence


def load_flow(config: Mapping[str, Any], inside: Inside) -> Flow:
    """Read the configuration of a run, check it, and print how much the run measures.

    Only the process that the user started opens a device. Processes of jobs do not.

    Parameters
    ----------
    config
        Snakemake's merged configuration. It is used if another workflow imports the rules.
    inside
        Access to Snakemake.

    Raises
    ------
    ConfigError, UnreadableError
        If the configuration has a fault, or if no device is found.
    HostError
        If this machine kept a device's runtime from its work, for example by a full disk.
    """
    plain, given = default_config(), _given(config, inside)
    for part, folder in given:
        plain = merged(plain, part, folder)
    shown = plain["dataset"] is not None or plain["before"] is not None
    asks = plain["backend"] == AUTO and not shown and _plans_jobs(inside)
    if asks and inside.on_cluster:
        named = " or ".join(f"backend={name}" for name in BACKENDS)
        raise ConfigError(
            "backend: auto asks the host on which Snakemake starts, and the jobs run elsewhere; "
            f"name what the nodes have, as --config {named} does."
        )
    results = Path(inside.take_prefix("results/"))
    try:
        if asks:
            # Runtimes keep there what they compile.
            refuse_unwritable(results)
        said = sys.stderr if _plans_jobs(inside) else io.StringIO()
        with heartbeat(said, "gpushmoo: still looking through the combinations of the sweeps"):
            flow = Flow(plain, _plans_jobs(inside), results)
    except HostError:
        raise
    except NoDeviceError as err:
        raise ConfigError(f"backend: {err}") from err
    if _plans_jobs(inside):
        _tell_run(flow, {name for part, _ in given for name in part.get("kernels") or ()})
    return flow


def _tell_run(flow: Flow, own: Collection[str]) -> None:
    """Print how much is measured, and write the run's folder into the file that `RUN_FOLDER` names.

    `own` are the sweeps that the user's configuration names.
    """
    if asked := os.environ.get(RUN_FOLDER):
        Path(asked).write_text(str(flow.results.resolve()), encoding="utf-8")
    if not flow.measures:
        return
    # Before the graph of jobs is made, which takes minutes where there are very many.
    with heartbeat(sys.stderr, "gpushmoo: still counting the cells", first_s=3.0):
        size = size_sentence(flow.sweeps_here, flow.choice.backend)
    for text in filter(None, (size, flow.sizes_here)):
        print(f"gpushmoo: {text}", file=sys.stderr)
    sweeps = set(flow.config.sweeps)
    wanted, others = sweeps.intersection(own), sweeps.difference(own)
    if wanted and others:
        print(
            f"gpushmoo: the default configuration's own sweeps are among them ({len(others)}); "
            f"'only: [{', '.join(sorted(wanted))}]' leaves them out.",
            file=sys.stderr,
        )


def _given(config: Mapping[str, Any], inside: Inside) -> list[tuple[Mapping[str, Any], Path]]:
    """Return the parts of the configuration and their folders, without the defaults.

    A later part overrides an earlier one.
    """
    parts = inside.configuration
    if parts is None:
        return [(typed(config), Path.cwd())]
    files, words = parts
    # Of `--config 'measure={repeats: 2}'` Snakemake makes texts.
    return [*((_read(path), path.parent) for path in files), (typed(words), Path.cwd())]


def _read(path: Path) -> Mapping[str, Any]:
    """Return the values of a configuration file as Snakemake reads it, with yte's templates."""
    # If a key is listed twice, Snakemake keeps the last one.
    read_mapping(path)
    values: Mapping[str, Any] = load_configfile(path)
    return values


# Options of Snakemake with which it runs no job.
_WITHOUT_JOBS = frozenset({"--lint", "--unlock"})


def _plans_jobs(inside: Inside) -> bool:
    """Return whether the user started this process to run or list jobs, not to lint or unlock."""
    return inside.is_users_process and _WITHOUT_JOBS.isdisjoint(sys.argv)


def limit_gpus(flow: Flow, inside: Inside) -> None:
    """Limit the measuring jobs that this host runs at the same time to two for each claimed device.

    A lock admits one job at a time to a device. The second job prepares its process meanwhile.
    Without a total, Snakemake ignores ``resources: gpu=1`` on this host. A total that the user sets
    (``--resources gpu=2``) is kept.
    """
    if flow.gpu_backend is None or not _plans_jobs(inside) or inside.on_cluster:
        return
    # Not 0 without any device: of 0 a job would claim nothing, and not be refused.
    inside.limit("gpu", _jobs_at_once(flow))


def quiet_snakemake_output(flow: Flow, inside: Inside, asked: Collection[str]) -> None:
    """Hide most of Snakemake's lines on jobs from the terminal. The log file keeps them.

    Measuring jobs print what a user needs. On a cluster nothing is hidden, because a job that the
    scheduler ended prints nothing itself. If nothing is to be done, the closing lines of the last
    run are printed again.

    Parameters
    ----------
    flow
        The run.
    inside
        Access to Snakemake.
    asked
        Paths of all outputs that Snakemake has checked. The closing lines are printed only if their
        file is one of them.
    """
    if not inside.quiet_about_rules():
        return
    closing = Path(flow.path("summary", "verdict.txt"))

    def matters(record: logging.LogRecord) -> bool:
        fields: dict[str, Any] = vars(record)
        if (event := fields.get("event")) == LogEvent.PROGRESS:
            # Twenty of all steps.
            done, total = 20 * fields["done"], fields["total"]
            return bool(done // total > (done - 20) // total)
        if record.msg == NOTHING_TO_DO and str(closing) in asked and closing.exists():
            record.msg += f"\n{read_complete(closing).decode().rstrip()}"
        of_job = event in (LogEvent.JOB_STARTED, LogEvent.JOB_FINISHED)
        return not of_job and record.msg != "Select jobs to execute..."

    inside.filter_terminal(matters)


def start_run(flow: Flow, inside: Inside) -> None:
    """Check folder and device, write the plan of the run, and start its servers.

    Nothing happens in a process that the user did not start.

    Raises
    ------
    SystemExit
        With one sentence, if the run cannot start.
    """
    if not inside.is_users_process:
        return
    jobs = inside.planned_jobs()
    try:
        _check_start(flow, jobs, inside.on_cluster)
        if flow.measures:
            # Jobs that outlived an earlier run see by it what is planned now.
            write_json(Path(flow.path(PLAN_FILE)), flow.plan.as_plain())
    except OSError as err:
        raise SystemExit(f"gpushmoo: {unwritten(flow.path(PLAN_FILE), err)}") from None
    except REFUSALS as err:
        raise SystemExit(f"gpushmoo: {err}") from None
    if not inside.in_environments:
        _start_servers_for(flow, inside, jobs)
    print_noted_files(flow, jobs)
    inside.start_jobs_when_ready()


def _check_start(flow: Flow, jobs: Sequence[Job], on_cluster: bool) -> None:
    """Raise ConfigError if the run's folder is not writable, or if the jobs lack a device."""
    refuse_unwritable(flow.results)
    if not on_cluster and any(job.gpus for job in jobs):
        refuse_without_device(flow)


def _start_servers_for(flow: Flow, inside: Inside, jobs: Sequence[Job]) -> None:
    """Start the servers that measure for the jobs, and the server that runs their scripts."""
    outs: dict[int, list[str]] = {}
    for job in jobs:
        if "shard" in job.wildcards:
            repeat = int(job.wildcards.get("repeat", 1))
            outs.setdefault(repeat, []).append(os.path.abspath(job.outputs[0]))
    if outs and not inside.on_cluster:
        start_measuring_servers(_jobs_at_once(flow), outs, flow.gpu_backend)
    served = [job for job in jobs if job.is_python and not job.gpus]
    # A single script imports all the same.
    if len(served) > 1:
        builds = any(job.script.endswith(BUILDING) for job in served)
        start_script_server(flow if builds else None)
        inside.serve_scripts({job.rule for job in served})


def refuse_unwritable(results: Path) -> None:
    """Raise ConfigError if gpushmoo cannot write to the run's folder."""
    folder = next(p for p in (results, *results.parents) if p.exists())
    if not os.access(folder, os.W_OK):
        raise ConfigError(
            f"'{folder}' cannot be written to (read-only, or another user's); nothing "
            "was started: make it writable, or choose another name by the key 'run'."
        )


def refuse_without_device(flow: Flow) -> None:
    """Raise ConfigError if jobs need a GPU and this host has no GPU.

    A device that the driver lists is not opened, which would take two seconds. If it is not usable,
    the measuring jobs report it.
    """
    backend = flow.gpu_backend
    if backend is not None and functions_of(backend).count_devices() == 0:
        try:
            probe(flow.choice)
        except NoDeviceError as err:
            raise ConfigError(f"backend: {err}") from err


def start_measuring_servers(
    number: int, outs: Mapping[int, Sequence[str]], backend: Backend | None = None
) -> list[subprocess.Popen[bytes]]:
    """Start the servers that keep measuring processes for the jobs of a run.

    Parameters
    ----------
    number
        Number of servers.
    outs
        Paths of the files that the jobs will write, by number of the repeat.
    backend
        Backend of the GPUs, if any. Each server at once starts a process that imports its
        libraries.
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
    """Start servers that listen on one Unix socket and end together with this process.

    Parameters
    ----------
    number
        Number of servers.
    program
        Module that a server runs, as with ``python -m``.
    address_name
        Environment variable that gets the path of the socket, for the clients of this process.
    jobs
        Value that the servers read from a JSON file, which is an argument of theirs.
    environment
        Variables that are added to the environment of the servers.

    Returns
    -------
    list
        The processes, empty if the path of the socket is too long for the system. Then each job
        starts its processes itself.
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
                    sys.executable,
                    "-m",
                    program,
                    str(fd),
                    str(os.getpid()),
                    str(listed),
                    str(i),
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
    """Start the server whose forks run the scripts of rules.

    Parameters
    ----------
    building
        The run, if some of the scripts compile. The server then loads the compiler in advance.
    """
    compiler = building and {
        "backend_name": building.choice.backend,
        "opencl_runtime": building.choice.runtime,
        "cache": building.cache,
    }
    start_servers(1, STAGES, STAGE_ADDRESS, {"compiler": compiler}, ONE_THREAD)


def _jobs_at_once(flow: Flow) -> int:
    """Return the number of measuring jobs that may run at the same time on this host.

    While one job measures on a GPU, another makes its inputs. If the device may be the host itself,
    only one job runs.
    """
    return _devices(flow) * (1 if flow.gpu_backend is None else 2)


def _devices(flow: Flow) -> int:
    """Return the number of devices on which this host measures at the same time."""
    backend = flow.gpu_backend
    if backend is None or flow.config.settings.device != "all":
        return 1
    return max(1, functions_of(backend).count_devices())


def print_noted_files(flow: Flow, jobs: Iterable[Job]) -> None:
    """Print which files the run makes again for a reason that a chapter states.

    Parameters
    ----------
    flow
        The run, whose chapters state reasons by file.
    jobs
        The jobs that Snakemake is going to run.
    """
    made = {file for job in jobs for file in job.outputs}
    noted = [chapter.plan.noted for chapter in flow.config.chapters.values()]
    reasons = {file: why for files in noted for file, why in files.items()}
    for reason in sorted(set(reasons.values())):
        if names := sorted(Path(f).name for f in made if reasons.get(f) == reason):
            print(f"gpushmoo: made again, as {reason}: {', '.join(names)}.", file=sys.stderr)
