"""Define requests to a backend's compiler, and read and write build files with its results.

A build file contains all versions of a kernel for one element type, as JSON with machine code in
Base64.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..core.display import one_line
from ..core.errors import (
    BuildError,
    DamagedFileError,
    DeviceError,
    HostError,
    TypedError,
    WorkloadError,
)
from ..core.schema import Status
from ..storage.room import is_full, is_unwritable, obstacle, temporary_folder, unwritten
from ..storage.wholefile import read_json, write_json
from ..workloads.loader import included_files


@dataclass(frozen=True)
class BuildRequest:
    """Devices to compile a run's kernels for, and settings of the compiler.

    Attributes
    ----------
    backend
        Name of the backend.
    device
        Index of the device in the backend, or ``all``.
    opencl_runtime
        Name of the OpenCL runtime.
    cuda_arch
        CUDA architecture (``sm_90``) to compile for instead of that of the devices, for other
        hosts.
    cache
        Folder in which compilers keep results.
    options
        Additional options of the compiler.
    """

    backend: str
    device: int | str
    opencl_runtime: str
    cuda_arch: str | None
    cache: Path
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class EntryFacts:
    """Decisions of the compiler about a kernel function.

    Attributes
    ----------
    symbol
        Name of the function in the machine code.
    block, shared_bytes
        Block and bytes of dynamic shared memory, if the compiler chooses them.
    hidden
        Number of additional parameters behind the kernel's own. They are pointers, and null.
    left_out
        Indices of arguments that are compiled in and not passed.
    """

    symbol: str
    block: tuple[int, int, int] | None = None
    shared_bytes: int = 0
    hidden: int = 0
    left_out: tuple[int, ...] = ()


def _facts(values: Mapping[str, Any]) -> dict[str, EntryFacts]:
    """Return the facts of kernel functions from a file, in which tuples are lists."""
    found = {}
    for name, fact in values.items():
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fact.items()}
        found[name] = EntryFacts(**plain)
    return found


@dataclass(frozen=True)
class VersionBuild:
    """One version of a kernel (`space.Version`), compiled for one kind of device.

    Attributes
    ----------
    compiler, options, log
        Name, options and messages of the compiler.
    status, failure
        For a version that cannot be measured: its status, and one sentence.
    code
        Machine code. None if the version failed, or if the runtime gives no code that can be
        loaded.
    entries
        Fields of a `sass.EntryCode` for each kernel function, or None if the machine code was not
        read.
    facts
        Decisions of the compiler, by the names that launches use for the functions.
    """

    compiler: str = ""
    options: str = ""
    log: str = ""
    status: Status | None = None
    failure: str | None = None
    code: bytes | None = None
    entries: list[dict[str, Any]] | None = None
    facts: Mapping[str, EntryFacts] = field(default_factory=dict)

    @property
    def error(self) -> TypedError | None:
        """The failure as an exception, or None if the version can be measured."""
        if self.failure is None:
            return None
        if self.status == Status.WORKLOAD_FAILED:
            return WorkloadError(self.failure)
        return BuildError(self.failure, self.log)


@dataclass(frozen=True)
class KernelBuild:
    """All versions of a kernel for one element type.

    Attributes
    ----------
    kernel_digest
        Digest of the sources.
    targets
        Versions by target and name. A target identifies the devices that can run the code: an
        architecture (``sm_90``), or a device with its runtime.
    """

    kernel_digest: str
    targets: Mapping[str, Mapping[str, VersionBuild]]


def write_build(path: Path, build: KernelBuild) -> None:
    """Write a build file atomically.

    Parameters
    ----------
    path
        The file.
    build
        Its content.
    """
    targets = {
        target: {
            name: asdict(v) | {"code": v.code and b64encode(v.code).decode()}
            for name, v in versions.items()
        }
        for target, versions in build.targets.items()
    }
    write_json(path, {"kernel_digest": build.kernel_digest, "builds": targets})


def read_build(path: Path) -> KernelBuild:
    """Return the content of a build file that `write_build` wrote.

    Raises
    ------
    DamagedFileError
        If the file is damaged.
    """
    content = read_json(path)

    def version(values: dict[str, Any]) -> VersionBuild:
        status, code = values["status"], values["code"]
        made = {"status": status and Status(status), "code": code and b64decode(code)}
        return VersionBuild(**{**values, **made, "facts": _facts(values["facts"])})

    targets = {
        target: {name: version(values) for name, values in versions.items()}
        for target, versions in content["builds"].items()
    }
    return KernelBuild(content["kernel_digest"], targets)


def kernel_source(folder: Path, suffix: str) -> str:
    """Return the text of a kernel's source.

    Parameters
    ----------
    folder
        The kernel's folder.
    suffix
        Suffix of the source, for example ``.cu``.

    Raises
    ------
    BuildError
        If the source is missing or is not UTF-8.
    """
    path = folder / f"kernel{suffix}"
    if not path.is_file():
        there = ", ".join(sorted(p.name for p in folder.glob("kernel.*"))) or "none"
        raise BuildError(
            f"Kernel '{folder.name}' has no {path.name}, which this run's backend compiles; its "
            f"sources: {there}",
            "",
        )
    try:
        # Without a byte order mark, which not all compilers take.
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as err:
        line = err.object[: err.start].count(b"\n") + 1
        raise BuildError(f"{path.name}, line {line}: not UTF-8; save it as that.", "") from err
    except OSError as err:
        raise BuildError(f"{path.name} cannot be read ({err.strerror}).", "") from err


def own_headers(folder: Path, suffix: str) -> tuple[str, ...]:
    """Return names and digests of the files that the kernel's source includes by a relative path.

    Parameters
    ----------
    folder
        The kernel's folder.
    suffix
        Suffix of the source, for example ``.cu``.
    """
    found = included_files(folder / f"kernel{suffix}")
    return tuple(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path, name in found)


@dataclass(frozen=True)
class CompiledCode:
    """Code that a device can load, messages of the compiler, and its decisions (`VersionBuild`)."""

    code: bytes
    log: str
    facts: Mapping[str, EntryFacts] = field(default_factory=dict)


def kept_code(
    parts: Sequence[str], folder: Path, compiled: Callable[[], CompiledCode]
) -> CompiledCode:
    """Return compiled code from a cache, or compile it if the file is missing or damaged.

    Parameters
    ----------
    parts
        All texts that determine the code.
    folder
        Folder of the cache.
    compiled
        Compiles the code.
    """
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    path = folder / f"{key}.json"
    # Damaged, missing, or changed by another program.
    with suppress(DamagedFileError, LookupError, ValueError):
        kept = read_json(path)
        return CompiledCode(b64decode(kept["code"]), kept["log"], _facts(kept.get("facts", {})))
    made = compiled()
    write_json(path, {**asdict(made), "code": b64encode(made.code).decode()})
    return made


# The beginning of an error's line: ``1:12:5: error: `` (Intel), ``x.cl:12:5: error: `` (Clang),
# ``x/kernel.cu(12): error: `` (NVRTC), ``error: x.cl:12:5: `` (PoCL 3).
_ERROR_LINE = re.compile(
    r"^(?:\S*?(?:\((\d+)\)|:(\d+)(?::\d+)?): [a-z ]*error[^:]*: |error: \S+?:(\d+):\d+: )(.+)$",
    re.M,
)

# Characters to keep of a compiler's message, half of them from its end.
_MAX_LOG = 10**6


# Output of compilers if the machine is at fault: its disk, or its memory.
_NO_ROOM = r"No space left on device|Disk quota exceeded|Read-only file system|File too large"
_NO_MEMORY = r"Cannot allocate memory|out of memory|bad_alloc"
_OF_THE_HOST = re.compile(f"({_NO_ROOM})|{_NO_MEMORY}", re.IGNORECASE)


def host_fault(printed: str, cache: Path) -> HostError | None:
    """Return the fault of this machine that stopped a compiler, or None if it is not at fault.

    Disk and memory may have room again when this is called. Therefore messages of the compiler also
    count.

    Parameters
    ----------
    printed
        Messages of the compiler.
    cache
        Folder in which compilers keep results.
    """
    temporary = temporary_folder()
    why = obstacle(cache, temporary)
    found = _OF_THE_HOST.search(printed)
    if why is None and found is not None:
        places = " and ".join(f"'{folder}'" for folder in dict.fromkeys((cache, temporary)))
        remedy = f"make room in {places}" if found[1] else "free memory, or compile fewer at once"
        why = f"A compiler stopped ({found[0]}): {remedy}, then start again."
    return None if why is None else HostError(why)


@contextmanager
def blaming_the_host(cache: Path) -> Iterator[None]:
    """Raise HostError for files that cannot be written in this context.

    Parameters
    ----------
    cache
        Folder to name in the message if the error names none.
    """
    try:
        yield
    except (OSError, WorkloadError) as err:
        # A workload's own error is its own, unless the disk is full.
        cause = err if isinstance(err, OSError) else err.__cause__
        if not isinstance(cause, OSError) or not (is_full(cause) or is_unwritable(err)):
            raise
        raise HostError(unwritten(cause.filename or cache, cause)) from err


def shortened(log: str) -> str:
    """Return a compiler's message without its middle if it is too long to keep."""
    if len(log) <= _MAX_LOG:
        return log
    left_out = f"\n[{len(log) - _MAX_LOG} characters are left out here]\n"
    return log[: _MAX_LOG // 2] + left_out + log[-_MAX_LOG // 2 :]


def compile_error(source: str, log: str, cache: Path | None = None) -> DeviceError:
    """Return the error of a source that does not compile, with the first error in the messages.

    Parameters
    ----------
    source
        Name of the source's file.
    log
        Messages of the compiler.
    cache
        Folder in which the compiler keeps results.

    Returns
    -------
    BuildError or HostError
        HostError if the messages name no line of the source and the compiler could not write files.
    """
    log = shortened(log)
    found = _ERROR_LINE.search(log)
    if found is not None:
        line = found[1] or found[2] or found[3]
        first = f"{source}:{line}: error: {found[4].strip()}"
    elif cache is not None and (fault := host_fault(log, cache)) is not None:
        return fault
    else:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line.lower()), (lines or ["error"])[0])
    return BuildError(f"{source} does not compile: {one_line(first)}", log)


def missing_entry(source: str, entry: str, there: Iterable[str], log: str) -> BuildError:
    """Return the error of launching a kernel function that the source does not define.

    Parameters
    ----------
    source
        Name of the source's file.
    entry
        Name of the function.
    there
        Names of the functions in the source.
    log
        Messages of the compiler.
    """
    names = sorted(there)
    return BuildError(
        f"{source} has no kernel '{entry}'; it has: {', '.join(names) or 'none'}", log
    )
