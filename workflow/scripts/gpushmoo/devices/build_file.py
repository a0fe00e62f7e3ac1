"""The build file of a kernel and dtype: requests to a backend's compiler, and its results.

JSON; machine code is in Base64.
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
    """The devices to compile a run's kernels for.

    `device` is an index within the backend or ``all``; `cuda_arch` (``sm_90``) names a CUDA
    architecture instead, for devices of other hosts. `cache` is the compilers' folder. `options`
    are additional options of the compiler.
    """

    backend: str
    device: int | str
    opencl_runtime: str
    cuda_arch: str | None
    cache: Path
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class EntryFacts:
    """The compiler's decisions about a kernel function, whose name in the machine code is `symbol`.

    A compiler that chooses the `block` and the bytes of dynamic shared memory itself also has
    `hidden` parameters, pointers behind the kernel's own, which are null; arguments at the places
    `left_out` are compiled in.
    """

    symbol: str
    block: tuple[int, int, int] | None = None
    shared_bytes: int = 0
    hidden: int = 0
    left_out: tuple[int, ...] = ()


def _facts(values: Mapping[str, Any]) -> dict[str, EntryFacts]:
    """The facts in a file, where tuples are lists."""
    found = {}
    for name, fact in values.items():
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fact.items()}
        found[name] = EntryFacts(**plain)
    return found


@dataclass(frozen=True)
class VersionBuild:
    """One version of a kernel (`space.Version`), compiled for one kind of device.

    `log` is the compiler's messages. `failure`, one sentence, and `status` belong to a version that
    cannot be measured. `code` is None for such a version, and if the runtime gives no reusable
    machine code. `entries` has the fields of a `sass.EntryCode` for each kernel function; None
    without a reading of the machine code. `facts` are of functions by the names that launches have
    for them.
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
        """The failure as an error."""
        if self.failure is None:
            return None
        if self.status == Status.WORKLOAD_FAILED:
            return WorkloadError(self.failure)
        return BuildError(self.failure, self.log)


@dataclass(frozen=True)
class KernelBuild:
    """Builds of a kernel and dtype by target and name of the version.

    A target names the devices that run its code: an architecture (``sm_90``), or a device with its
    runtime. `kernel_digest` identifies the sources.
    """

    kernel_digest: str
    targets: Mapping[str, Mapping[str, VersionBuild]]


def write_build(path: Path, build: KernelBuild) -> None:
    """Write the build file `path`, whole or not at all."""
    targets = {
        target: {
            name: asdict(v) | {"code": v.code and b64encode(v.code).decode()}
            for name, v in versions.items()
        }
        for target, versions in build.targets.items()
    }
    write_json(path, {"kernel_digest": build.kernel_digest, "builds": targets})


def read_build(path: Path) -> KernelBuild:
    """The build in a file that `write_build` wrote. Raises DamagedFileError."""
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
    """The text of the kernel's source. Raises BuildError if it is missing or not UTF-8."""
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
    """Names and digests of the files that the kernel's source includes by their paths from it."""
    found = included_files(folder / f"kernel{suffix}")
    return tuple(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path, name in found)


@dataclass(frozen=True)
class CompiledCode:
    """Code that a device loads, the compiler's messages, and facts (see `VersionBuild`)."""

    code: bytes
    log: str
    facts: Mapping[str, EntryFacts] = field(default_factory=dict)


def kept_code(
    parts: Sequence[str], folder: Path, compiled: Callable[[], CompiledCode]
) -> CompiledCode:
    """The code that `parts` determine out of `folder`; compiled if it is missing or damaged."""
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
    """The fault of this machine that kept a compiler from its work.

    None if its folders take files and the compiler has `printed` nothing of the kind. Disk and
    memory may have room again by now, so its output counts as well.
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
    """Raise HostError for files that cannot be written within it, to `cache` or elsewhere."""
    try:
        yield
    except (OSError, WorkloadError) as err:
        # A workload's own error is its own, unless the disk is full.
        cause = err if isinstance(err, OSError) else err.__cause__
        if not isinstance(cause, OSError) or not (is_full(cause) or is_unwritable(err)):
            raise
        raise HostError(unwritten(cause.filename or cache, cause)) from err


def shortened(log: str) -> str:
    """A compiler's message without the middle of one that is too long to keep."""
    if len(log) <= _MAX_LOG:
        return log
    left_out = f"\n[{len(log) - _MAX_LOG} characters are left out here]\n"
    return log[: _MAX_LOG // 2] + left_out + log[-_MAX_LOG // 2 :]


def compile_error(source: str, log: str, cache: Path | None = None) -> DeviceError:
    """The error of the file `source`, with the first error in `log`.

    A HostError if `log` names no line of it, and the compiler could not write into its `cache`.
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
    """Return the error of launching `entry`, which the file `source` does not define."""
    names = sorted(there)
    return BuildError(
        f"{source} has no kernel '{entry}'; it has: {', '.join(names) or 'none'}", log
    )
