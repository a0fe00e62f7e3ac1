"""Compile a kernel for one element type and the devices that measure it (rule build_kernel).

``python -m gpushmoo.devices.building`` does this for a call from Python. Compilers run in forks of
that process, on all cores, because the caller may have threads and an open device.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from ..core.backends import AUTO, BACKENDS
from ..core.build_job import BuildJob
from ..core.errors import (
    BuildError,
    DeviceError,
    HostError,
    MachineCodeError,
    NoDeviceError,
    WorkloadError,
)
from ..core.news import News
from ..core.paths import child_environment
from ..core.schema import Status
from ..core.space import Version
from ..storage.joblog import end_with_parent
from ..workloads.loader import KernelFolder, load_kernel
from .base import functions_of
from .build_file import (
    BuildRequest,
    KernelBuild,
    VersionBuild,
    blaming_the_host,
    host_fault,
    read_build,
    write_build,
)
from .isolated import PATIENCE, SLOW_S, TaskEnded, run_isolated
from .select import DeviceChoice, resolve

log = logging.getLogger(__name__)

# Location of the log of a call; its own file goes with the result.
LOG_OF_A_CALL = "`log` of the result, log.txt in --out"
# Seconds of a processor that a runtime may take to name its devices.
_ASKING_S = 60.0


def build_kernel(
    job: BuildJob,
    cache: Path | str,
    out: Path,
    terminal: TextIO,
    log_file: str,
    threads: int,
    on_done: Callable[[int, int], None] | None = None,
) -> None:
    """Compile all versions of a kernel for one element type, and write the build file.

    A version that does not compile, crashes its compiler or lacks a timed memory access affects
    only its own cells. Its error is printed, and its messages are logged.

    Only `prepare_forks` may have initialized a device's runtime in this process, because compilers
    run in forks.

    Parameters
    ----------
    job
        The kernel, its versions, and the devices.
    cache
        Folder in which compilers keep results.
    out
        Path of the build file.
    terminal
        Terminal for errors and progress.
    log_file
        Path of the log, for messages.
    threads
        Number of compilers that run at the same time.
    on_done
        Called with the number of compiled versions and of all versions. By default `terminal` shows
        the progress.

    Raises
    ------
    NoDeviceError
        If no device or compiler responds.
    HostError
        If the machine stopped a compiler, for example by a full disk. No file is written then.
    """
    folder = load_kernel(job.kernel_folder)
    request = BuildRequest(job.backend, job.device, job.opencl_runtime, job.cuda_arch, Path(cache))
    if request.opencl_runtime == AUTO and BACKENDS[request.backend].runtimes:
        choice = DeviceChoice(request.backend, 0, AUTO, request.cache)
        request = replace(request, opencl_runtime=resolve(choice)[0].runtime)
    news = News(terminal, in_place=False)

    def report(done: int, total: int) -> None:
        if done < total:
            news.show(compiling(f"{folder.name} {job.dtype}", done, total))

    build = _built(request, folder, job, threads, terminal, on_done or report)
    for target, versions in build.targets.items():
        for name, made in versions.items():
            if made.failure is not None:
                log.error("%s, variant %s: %s\n%s", target, name, made.failure, made.log)
        failures = {name: made.failure for name, made in versions.items() if made.failure}
        for sentence in failure_sentences(failures):
            where = f"{folder.name}, {job.dtype}"
            terminal.write(f"gpushmoo: {where}, {sentence} (whole message: {log_file})\n")
    with blaming_the_host(out):
        write_build(out, build)


def prepare_forks(backend_name: str, opencl_runtime: str, cache: str) -> None:
    """Initialize a compiler once in this process, instead of in each of its forks.

    Parameters
    ----------
    backend_name, opencl_runtime
        Names of the backend and of the OpenCL runtime.
    cache
        Folder in which compilers keep results.
    """
    backend = BACKENDS[backend_name]
    if not backend.begin_compiler:
        return
    module, name = backend.begin_compiler.split(":")
    package, before = backend.module.rpartition(".")[0], dict(os.environ)
    try:
        getattr(import_module(f"{package}.{module}"), name)(opencl_runtime, Path(cache))
    finally:
        # Forks for other jobs have no use for a runtime's settings.
        os.environ.clear()
        os.environ.update(before)


def compiling(label: str, done: int, total: int) -> str:
    """Return a text on the progress of the compilers.

    Parameters
    ----------
    label
        Names the kernel and the element type.
    done, total
        Number of compiled versions, and of all versions.
    """
    return f"{label}: compiling, {done:,} of {total:,} versions done"


def failure_sentences(failures: Mapping[str, str]) -> list[str]:
    """Return a sentence for each different failure, with the versions that have it.

    Parameters
    ----------
    failures
        Failures by name of the version.
    """
    named: dict[str, list[str]] = {}
    for name, failure in failures.items():
        named.setdefault(failure, []).append(name)
    return [
        f"variant {names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {failure}"
        for failure, names in named.items()
    ]


def refuse_failures(builds: Sequence[Path]) -> None:
    """Raise MachineCodeError if a build file has a version that cannot be measured."""
    failures = sorted(
        f"{path.parent.name}, {path.stem}, {name}"
        for path in builds
        for versions in read_build(path).targets.values()
        for name, made in versions.items()
        if made.failure is not None
    )
    if failures:
        raise MachineCodeError(f"The machine code of {'; '.join(failures)} is not as it must be.")


def compile_here(
    request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, target: str
) -> VersionBuild:
    """Compile a kernel with one set of defines in this process, and return it or its failure.

    Parameters
    ----------
    request
        Options and cache of the compiler.
    folder
        The kernel.
    dtype
        Name of the element type.
    version
        The defines: those of a variant, and values of launch parameters that are compiled in.
    target
        The devices to compile for, see `KernelBuild`.

    Raises
    ------
    NoDeviceError
        If there is no compiler.
    HostError
        If the machine stopped the compiler.
    """
    try:
        with blaming_the_host(request.cache):
            return functions_of(BACKENDS[request.backend]).compile_version(
                request, folder, dtype, version, target
            )
    except NoDeviceError:
        raise
    except BuildError as err:
        return VersionBuild(status=Status.BUILD_FAILED, failure=str(err), log=err.log)
    except WorkloadError as err:
        return VersionBuild(status=Status.WORKLOAD_FAILED, failure=str(err))


def compile_ahead(choice: DeviceChoice, job: BuildJob) -> None:
    """Compile the versions of a job in this process, only to fill the compilers' cache.

    Parameters
    ----------
    choice
        The device to compile for.
    job
        The kernel and its versions.

    Raises
    ------
    DeviceError
        If there is no compiler, or if the machine stopped it.
    """
    folder = load_kernel(job.kernel_folder)
    request = BuildRequest(choice.backend, str(choice.index), choice.runtime, None, choice.cache)
    (target,) = functions_of(BACKENDS[choice.backend]).targets(request)
    for version in job.versions:
        compile_here(request, folder, job.dtype, version, target)


def _built(
    request: BuildRequest,
    folder: KernelFolder,
    job: BuildJob,
    cores: int,
    terminal: TextIO,
    on_done: Callable[[int, int], None],
) -> KernelBuild:
    """Compile all versions in separate processes."""
    builder = functions_of(BACKENDS[request.backend])
    for module in BACKENDS[request.backend].imported:
        # Once, not in each of the processes that are forked. They say what is missing.
        with suppress(ImportError):
            import_module(module)
    limit_s = job.compile_timeout_s
    asked = run_isolated({"targets": partial(builder.targets, request)}, 1, _ASKING_S)["targets"]
    if isinstance(asked, TaskEnded):
        said = f"The {request.backend} runtime cannot be asked: it {asked.how}."
        raise host_fault(asked.printed, request.cache) or NoDeviceError(said)
    tasks: dict[tuple[str, str], Callable[[], Any]] = {
        (target, v.name): partial(compile_here, request, folder, job.dtype, v, target)
        for target in asked
        for v in job.versions
    }

    def say_slow(task: tuple[str, str]) -> None:
        terminal.write(
            f"gpushmoo: {folder.name}, {job.dtype}: variant {task[1]} has been compiling for "
            f"{SLOW_S:g} s; its limit is {limit_s:g} s of a processor (compile_timeout_s)\n"
        )
        terminal.flush()

    made = run_isolated(tasks, cores, limit_s, say_slow, on_done)
    targets: dict[str, dict[str, VersionBuild]] = {target: {} for target in asked}
    for (target, name), result in made.items():
        if isinstance(result, TaskEnded):
            result = _failed(result, f"{folder.name}, variant {name}", request.cache, limit_s)
        targets[target][name] = result
    return KernelBuild(job.kernel_digest, targets)


def _failed(ended: TaskEnded, what: str, cache: Path, limit_s: float) -> VersionBuild:
    """Return the version as failed, or raise HostError if the host ended its process."""
    if ended.is_struck:
        raise HostError(
            f"The compiler of {what}, {ended.how} again and again, the last time while no other "
            "ran, as by a system that is short of memory: free memory, then start again."
        )
    if ended.is_late:
        failure = (
            f"the compiler did not end within {limit_s:g} s of a processor, or "
            f"{PATIENCE * limit_s:g} s by the clock; the key compile_timeout_s sets this limit"
        )
    else:
        if (fault := host_fault(ended.printed, cache)) is not None:
            raise fault
        failure = f"the compiler's process {ended.how}"
    return VersionBuild(status=Status.BUILD_FAILED, failure=failure, log=ended.printed)


# The exit status that goes with a DeviceError's sentence, and the beginning of lines to show.
_REFUSED = 3
_SAID = "gpushmoo: "
# Begins a line of the compiling process with two numbers: versions done, and all.
_COUNTED = "\0"


def build_in_subprocess(
    job: BuildJob, cache: Path, out: Path, log_file: Path, news: News, label: str
) -> None:
    """Do the same as `build_kernel` in another process.

    Parameters
    ----------
    job
        The kernel, its versions, and the devices.
    cache
        Folder in which compilers keep results.
    out
        Path of the build file.
    log_file
        File to which the compilers print.
    news
        Shows the progress.
    label
        Beginning of each line of progress.

    Raises
    ------
    DeviceError
        If no device or compiler responds.
    """
    news.show(compiling(label, 0, len(job.versions)))
    command = [sys.executable, "-m", __name__, json.dumps(job.plain), str(cache), str(out)]
    with (
        log_file.open("ab") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=child_environment(),
            encoding="utf-8",
            errors="replace",
        ) as done,
    ):
        assert done.stdout is not None
        refusal = ""
        try:
            for line in done.stdout:
                if line.startswith(_COUNTED):
                    news.show(compiling(label, *map(int, line.removeprefix(_COUNTED).split())))
                elif line.startswith(_SAID):
                    news.write(line.rstrip("\n"))
                else:
                    refusal = line.strip()
        except BaseException:
            done.kill()
            raise
        finally:
            news.clear()
    if done.returncode == _REFUSED:
        raise DeviceError(refusal)
    if done.returncode:
        raise DeviceError(f"The compiling process ended with status {done.returncode}.")


def _main(job: str, cache: str, out: str) -> int:
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # Compilers print into the log; the caller's pipe gets sentences alone.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as pipe:
        os.dup2(2, 1)
        try:
            cores = os.cpu_count() or 1
            count = partial(print, file=pipe, flush=True)
            build_kernel(
                BuildJob.of_plain(json.loads(job)),
                Path(cache),
                Path(out),
                pipe,
                LOG_OF_A_CALL,
                cores,
                lambda done, total: count(f"{_COUNTED}{done} {total}"),
            )
        except DeviceError as err:
            print(err, file=pipe)
            return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
