"""What a kernel's versions are built into, and which cells a shard has on this device."""

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
    LaunchRefusedError,
    NoDeviceError,
    TypedError,
    WorkloadError,
)
from ..core.space import Cell, Residency, ShardSpace, Version, expand_axis
from ..devices.base import Device, Program
from ..devices.building import compile_here
from ..devices.builds import KernelBuild, VersionBuild
from ..workloads.loader import KernelFolder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Builds:
    """Programs by the version's name; a version of which there is none maps to the reason.

    `machine_code` is what was seen in the versions' machine code, as the provenance holds it; None
    where nobody looked. `compiled_here` says of versions that this process compiled in spite of a
    build file why it did. `codes` are digests of machine code; "" where the runtime tells none.
    """

    programs: dict[str, Program] = field(default_factory=dict)
    failures: dict[str, TypedError] = field(default_factory=dict)
    machine_code: dict[str, Any] | None = None
    compiled_here: dict[str, str] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)


@dataclass
class HostProgram:
    """Stands for a program where nothing runs on the device."""

    options: str = ""
    log: str = ""

    def resident_per_unit(self, entry: str, threads: int, shared_bytes: int) -> int:
        """1: the host runs one such kernel at a time."""
        return 1

    def registers(self, entry: str) -> int | None:
        """None: nothing runs on the device, so no registers are taken."""
        return None


def build_variants(
    device: Device, folder: KernelFolder, dtype: str, names: Sequence[str]
) -> Builds:
    """Compile these variants of a kernel without compile-time axes for `device`."""
    return build_versions(device, folder, dtype, [Version(name) for name in names])


def build_versions(
    device: Device, folder: KernelFolder, dtype: str, versions: Sequence[Version]
) -> Builds:
    """Compile each version for `device`; a compiler's message goes to the log, whole."""
    builds = Builds()
    if not folder.workload.device_code:
        return Builds({version.name: HostProgram() for version in versions})
    for version in versions:
        name = version.name
        try:
            macros = folder.workload.macros(dtype, version)
            builds.programs[name] = device.build(folder.path, DTYPES[dtype], macros)
        except BuildError as err:
            log.error("%s, %s, variant %s: %s\n%s", folder.name, dtype, name, err, err.log)
            builds.failures[name] = err
        except WorkloadError as err:
            builds.failures[name] = err
    return builds


def programs_for(
    device: Device,
    folder: KernelFolder,
    dtype: str,
    versions: Sequence[Version],
    build: KernelBuild | None,
    kernel_digest: str,
    options: tuple[str, ...] = (),
) -> Builds:
    """The programs of these versions, loaded from `build`; what it lacks is compiled here.

    What is compiled here gets the compiler's `options` besides those of every build.
    Raises DeviceError where `build` was made from another state of the kernel than the one with
    this digest, and where it lacks code that cannot be compiled here.
    """
    if not folder.workload.device_code:
        return build_versions(device, folder, dtype, versions)
    reason = None if build is None else _misfit(build, device, versions, kernel_digest)
    if build is None or reason is not None:
        made = _compiled_here(device, folder, dtype, versions, reason, options)
    else:
        made = {version: build.targets[device.target][version.name] for version in versions}
    builds, anew = _loaded(device, folder, dtype, made, options)
    if reason is not None:
        anew = {version.name: reason for version in made}
    told = {v.name: {"failure": b.failure, "entries": b.entries or []} for v, b in made.items()}
    looked_at = any(b.entries is not None for b in made.values())
    return replace(
        builds,
        machine_code={"arch": device.target, "variants": told} if looked_at else None,
        compiled_here=anew if build is not None else {},
        codes={v.name: hashlib.sha256(b.code or b"").hexdigest()[:16] for v, b in made.items()},
    )


def _misfit(
    build: KernelBuild, device: Device, versions: Sequence[Version], kernel_digest: str
) -> str | None:
    """Why the versions must be compiled here, as a clause; None where the build file has them."""
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
    versions: Sequence[Version],
    reason: str | None,
    options: tuple[str, ...],
) -> dict[Version, VersionBuild]:
    made, request, target = {}, device.request, device.target
    if options:
        request = replace(request, options=options)
    for version in versions:
        try:
            made[version] = compile_here(request, folder, dtype, version, target)
        except NoDeviceError as err:
            if reason is None:
                raise
            raise DeviceError(f"{reason[0].upper()}{reason[1:]}, and: {err}") from err
        if (failure := made[version].failure) is not None:
            log.error("variant %s: %s\n%s", version.name, failure, made[version].log)
    return made


def _loaded(
    device: Device,
    folder: KernelFolder,
    dtype: str,
    made: Mapping[Version, VersionBuild],
    options: tuple[str, ...],
) -> tuple[Builds, dict[str, str]]:
    """The programs of what was compiled, and why a version had to be compiled anew all the same.

    It is where the runtime gave no machine code, or does not take it back. With `options`, which
    no device is told, such a version is refused.
    """
    builds = Builds()
    anew: dict[Version, str] = {}
    for version, build in made.items():
        if build.error is not None:
            builds.failures[version.name] = build.error
            continue
        try:
            builds.programs[version.name] = device.load(build)
        except BuildError as err:
            if options:
                builds.failures[version.name] = err
            else:
                anew[version] = str(err)
    compiled = build_versions(device, folder, dtype, list(anew))
    both = Builds(builds.programs | compiled.programs, builds.failures | compiled.failures)
    return both, {version.name: reason for version, reason in anew.items()}


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def first_printf(folder: KernelFolder, suffix: str) -> str | None:
    """``kernel.cl:12``, where the source or a header beside it calls printf; None where none does.

    Whether that is compiled in is not looked at.
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


def plan_cells(
    device: Device,
    folder: KernelFolder,
    builds: Builds,
    versions: Sequence[Version],
    space: ShardSpace,
) -> list[Cell]:
    """The cells of a shard, with axes resolved by this device's occupancy.

    It is that of the first of `versions` that was built and can be launched.
    """
    lone = Residency(device.info.units, 1)
    first = {name: expand_axis(spec, lone)[0] for name, spec in space.axes.items()}
    per_unit = 1
    for version in (v for v in versions if v.name in builds.programs):
        params = tuple(sorted({**first, **dict(version.values)}.items()))
        cell = Cell(folder.name, space.dtype, version.variant, space.problems[0], params)
        try:
            launch = folder.workload.launch(cell)
            per_unit = builds.programs[version.name].resident_per_unit(
                launch.entry, launch.threads, launch.shared_bytes
            )
        except (BuildError, LaunchRefusedError, WorkloadError):
            continue
        break
    residency = Residency(device.info.units, per_unit)
    most = folder.workload.most
    # Values that the configuration itself names were checked with it.
    values = {
        name: [v for v in expand_axis(spec, residency) if v <= most.get(name, v)]
        for name, spec in space.axes.items()
    }
    return space.cells(folder.name, values)
