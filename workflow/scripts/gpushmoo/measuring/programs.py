"""Load or compile the versions of a kernel, and list the cells of a shard on this device."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..core.dtypes import DTYPES
from ..core.errors import (
    BuildError,
    DeviceError,
    LaunchConfigError,
    NoDeviceError,
    SizeError,
    TypedError,
    WorkloadError,
)
from ..core.shard_job import ShardJob
from ..core.space import Cell, Residency, ShardSpace, Version, expand_axis
from ..devices.base import Device, DeviceInfo, Program, completed, set_constants, steady_room
from ..devices.build_file import EntryFacts, KernelBuild, VersionBuild
from ..devices.building import compile_here, compiling
from ..workloads.combinations import MAX_ROWS, Combinations, Tell, look_through
from ..workloads.contract import Launch
from ..workloads.loader import KernelFolder
from ..workloads.sizes import Room, resolved

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Builds:
    """Programs of a kernel by name of the version, and errors of those that failed.

    Attributes
    ----------
    programs
        Loaded programs.
    failures
        Errors of versions that were not compiled or loaded.
    machine_code
        Properties of the machine code for the provenance, or None.
    compiled_here
        Why a version was compiled although there is a build file.
    codes
        Digests of the machine code.
    """

    programs: dict[str, Program] = field(default_factory=dict)
    failures: dict[str, TypedError] = field(default_factory=dict)
    machine_code: dict[str, Any] | None = None
    compiled_here: dict[str, str] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)


@dataclass
class HostProgram:
    """Program of a kernel that runs on the host and has no code for the device."""

    options: str = ""
    log: str = ""
    facts: Mapping[str, EntryFacts] = field(default_factory=dict)

    def resident_blocks(self, launch: Launch) -> int:
        """Return 1, because the host runs one kernel at a time."""
        return 1

    def registers(self, entry: str) -> int | None:
        """Return None, because the kernel uses no registers of the device."""
        return None


def programs_for(
    device: Device,
    folder: KernelFolder,
    dtype: str,
    versions: Sequence[Version],
    build: KernelBuild | None = None,
    kernel_digest: str = "",
    options: tuple[str, ...] = (),
    tell: Tell | None = None,
) -> Builds:
    """Load or compile versions of a kernel.

    Parameters
    ----------
    device
        The open device.
    folder
        The kernel.
    dtype
        Name of the element type.
    versions
        The versions.
    build
        Content of the build file. Without it, or if it lacks a version, versions are compiled here.
    kernel_digest
        Digest of the kernel's sources, which `build` must have.
    options
        Additional options of the compiler.
    tell
        Called with the progress.

    Raises
    ------
    DeviceError
        If `build` was made from other sources, or lacks code that cannot be compiled here.
    """
    workload = folder.workload
    if not workload.device_code:
        return Builds({version.name: HostProgram() for version in versions})
    reason = None if build is None else _misfit(build, device, versions, kernel_digest)
    builds = Builds()
    made = dict[str, VersionBuild]()
    for done, version in enumerate(versions):
        name = version.name
        if tell is not None and (build is None or reason is not None):
            tell(compiling(f"{folder.name} {dtype}", done, len(versions)))
        if build is not None and reason is None:
            made[name] = build.targets[device.target][name]
        else:
            made[name] = _compiled_here(device, folder, dtype, version, reason, options)
        anew = reason
        if (failure := made[name].error) is not None:
            builds.failures[name] = failure
        else:
            try:
                try:
                    program = device.load(made[name])
                except BuildError as err:
                    # The runtime gave no machine code, or does not take it back.
                    anew = reason or str(err)
                    macros = workload.macros(dtype, version)
                    more = (*workload.options, *options)
                    program = device.build(folder.path, DTYPES[dtype], macros, more)
                constants = workload.constants(version)
                if constants:
                    set_constants(device, program, constants)
                builds.programs[name] = program
            except BuildError as err:
                log.error("%s, %s, variant %s: %s\n%s", folder.name, dtype, name, err, err.log)
                builds.failures[name] = err
            except WorkloadError as err:
                builds.failures[name] = err
        if build is not None and anew is not None:
            builds.compiled_here[name] = anew
    seen = {n: {"failure": b.failure, "entries": b.entries or []} for n, b in made.items()}
    any_seen = any(b.entries is not None for b in made.values())
    return replace(
        builds,
        machine_code={"arch": device.target, "variants": seen} if any_seen else None,
        codes={n: hashlib.sha256(b.code or b"").hexdigest()[:16] for n, b in made.items()},
    )


def _misfit(
    build: KernelBuild, device: Device, versions: Sequence[Version], kernel_digest: str
) -> str | None:
    """Return why versions must be compiled here as a clause, or None if the file has them."""
    if build.kernel_digest != kernel_digest:
        raise DeviceError(
            "The kernel's build file was made from another state of its sources; delete the run's "
            "folder 'builds' and start again."
        )
    if device.target not in build.targets:
        held = "', '".join(sorted(build.targets))
        return f"the build file holds machine code for '{held}', this device runs '{device.target}'"
    missing = {version.name for version in versions} - build.targets[device.target].keys()
    return f"the build file lacks {', '.join(sorted(missing))}" if missing else None


def _compiled_here(
    device: Device,
    folder: KernelFolder,
    dtype: str,
    version: Version,
    reason: str | None,
    options: tuple[str, ...],
) -> VersionBuild:
    request = replace(device.request, options=options) if options else device.request
    try:
        made = compile_here(request, folder, dtype, version, device.target)
    except NoDeviceError as err:
        if reason is None:
            raise
        raise DeviceError(f"{reason[0].upper()}{reason[1:]}, and: {err}") from err
    if made.failure is not None:
        log.error("variant %s: %s\n%s", version.name, made.failure, made.log)
    return made


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def first_printf(folder: KernelFolder, suffix: str) -> str | None:
    """Return the first call of printf in a kernel's source or headers, as ``kernel.cl:12``.

    Parameters
    ----------
    folder
        The kernel.
    suffix
        Suffix of its source.

    Returns
    -------
    str or None
        None if no line calls printf.
    """
    source = folder.path / f"kernel{suffix}"
    headers = sorted(p for p in folder.path.iterdir() if p.suffix in {".h", ".cuh"})
    for path in filter(Path.is_file, (source, *headers)):
        text = path.read_text(encoding="utf-8", errors="replace")
        code = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
        found = re.search(r"\bprintf\s*\(", code)
        if found is not None:
            return f"{path.name}:{1 + code.count(chr(10), 0, found.start())}"
    return None


def space_here(info: DeviceInfo, folder: KernelFolder, job: ShardJob) -> ShardSpace:
    """Return the cells of a job with the sizes that they have on this device.

    Parameters
    ----------
    info
        Properties of the device.
    folder
        The kernel.
    job
        The job.

    Raises
    ------
    DeviceError
        If a size depends on a property that the device does not report, or if it does not fit.
    """
    room = Room(info.cache, info.kind == "cpu", *steady_room(info))
    try:
        return resolved(job.space, folder.workload, room)
    except SizeError as err:
        raise DeviceError(f"kernels.{folder.name}.sizes: {err}.") from err


def axis_values(
    device: Device,
    folder: KernelFolder,
    builds: Builds,
    versions: Sequence[Version],
    space: ShardSpace,
) -> dict[str, list[int]]:
    """Return the values of all axes on this device.

    Values that depend on the occupancy use that of the first version that can be launched.

    Parameters
    ----------
    device
        The open device.
    folder
        The kernel.
    builds
        Compiled versions.
    versions
        Versions in the order in which they are tried.
    space
        The cells, with specifications of the axes.
    """
    lone = Residency(device.info.multiprocessors, 1)
    first = {name: expand_axis(spec, lone)[0] for name, spec in space.axes.items()}
    resident_blocks = 1
    for version in (v for v in versions if v.name in builds.programs):
        params = tuple(sorted({**first, **dict(version.values)}.items()))
        cell = Cell(folder.name, space.dtype, version.variant, space.problems[0], params)
        try:
            program = builds.programs[version.name]
            launch = completed(folder.workload.launch(cell), program)
            resident_blocks = program.resident_blocks(launch)
        except (BuildError, LaunchConfigError, WorkloadError):
            continue
        break
    residency = Residency(device.info.multiprocessors, resident_blocks)
    most = folder.workload.most
    # The configuration's own values were checked before.
    return {
        name: [v for v in expand_axis(spec, residency) if v <= most.get(name, v)]
        for name, spec in space.axes.items()
    }


def plan_cells(
    folder: KernelFolder,
    space: ShardSpace,
    values: Mapping[str, Sequence[int]],
    found: Combinations | None = None,
    tell: Tell | None = None,
) -> tuple[list[Cell], Combinations | None]:
    """Return the shard's cells that get a row, and the valid combinations if there is a rule.

    Parameters
    ----------
    folder
        The kernel.
    space
        The cells, with sizes of this device.
    values
        Values by axis.
    found
        Valid combinations, if they are known.
    tell
        Called with the progress of the check of combinations.

    Raises
    ------
    DeviceError
        If the rule `valid` raises an error for too many combinations.
    """
    workload, name = folder.workload, folder.name
    if not workload.is_restricted:
        return space.cells(name, values), None
    found = found or look_through(workload, space, values, tell)
    if found.failed > MAX_ROWS:
        raise DeviceError(f"{found.fault(workload.valid_is)}.")
    return space.cells_at(name, values, found.places_of_rows), found
