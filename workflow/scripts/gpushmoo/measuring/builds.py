"""What a kernel's variants are built into, before any of them is measured."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.dtypes import DTYPES
from ..core.errors import BuildError, DeviceError, NoDeviceError, TypedError, WorkloadError
from ..core.space import ShardSpace
from ..devices.base import Device, Program
from ..devices.build_file import KernelBuild, VariantBuild
from ..devices.building import compile_here
from ..workloads.last_words import mark, swap
from ..workloads.loader import KernelFolder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Builds:
    """Programs by variant; a variant of which there is none maps to the reason."""

    programs: dict[str, Program]
    failures: dict[str, TypedError]

    def refuse(self, variant: str, reason: TypedError) -> None:
        """Leave `variant` out, whether there is a program of it or not."""
        self.programs.pop(variant, None)
        self.failures.setdefault(variant, reason)


@dataclass
class HostProgram:
    """Stands for a program where nothing runs on the device."""

    options: str = ""
    log: str = ""

    def resident_per_unit(self, entry: str, threads: int) -> int:
        """1: the host runs one such kernel at a time."""
        return 1

    def registers(self, entry: str) -> int | None:
        """None: nothing runs on the device, so no registers are taken."""
        return None


def build_variants(
    device: Device, folder: KernelFolder, dtype: str, names: Sequence[str]
) -> Builds:
    """Compile each variant for `device`; a compiler's message goes to the log, whole."""
    builds = Builds({}, {})
    if not folder.workload.device_code:
        return Builds({name: HostProgram() for name in names}, {})
    for variant in names:
        before = swap(mark(f"variant '{variant}' was compiled"))
        try:
            defines = folder.workload.defines(dtype, variant)
            builds.programs[variant] = device.build(folder.path, DTYPES[dtype], defines)
        except BuildError as err:
            log.error("%s, %s, variant %s: %s\n%s", folder.name, dtype, variant, err, err.log)
            builds.refuse(variant, err)
        except WorkloadError as err:
            builds.refuse(variant, err)
        finally:
            swap(before)
    return builds


@dataclass(frozen=True)
class ReadyPrograms:
    """What a measuring process has to run.

    `machine_code` is what was seen in the variants' machine code, as the provenance holds it; None
    where nobody looked. `compiled_here` says of variants that this process compiled in spite of a
    build file why it did.
    """

    builds: Builds
    machine_code: dict[str, Any] | None
    compiled_here: dict[str, str]


def programs_for(
    device: Device,
    folder: KernelFolder,
    space: ShardSpace,
    build: KernelBuild | None,
    kernel_digest: str,
) -> ReadyPrograms:
    """The programs of a shard's variants, loaded from `build`; what it lacks is compiled here.

    Raises DeviceError where `build` was made from another state of the kernel than the one with
    this digest, and where it lacks code that cannot be compiled here.
    """
    if not folder.workload.device_code:
        return ReadyPrograms(build_variants(device, folder, space.dtype, space.variants), None, {})
    reason = None if build is None else _misfit(build, device, space, kernel_digest)
    if build is None or reason is not None:
        made = _compiled_here(device, folder, space, reason)
    else:
        made = {v: build.targets[device.target][v] for v in space.variants}
    builds, anew = _loaded(device, folder, space.dtype, made)
    anew = dict.fromkeys(made, reason) if reason is not None else anew
    told = {v: {"failure": b.failure, "entries": b.entries or []} for v, b in made.items()}
    looked_at = any(b.entries is not None for b in made.values())
    code = {"arch": device.target, "variants": told} if looked_at else None
    return ReadyPrograms(builds, code, anew if build is not None else {})


def _misfit(
    build: KernelBuild, device: Device, space: ShardSpace, kernel_digest: str
) -> str | None:
    """Why the variants must be compiled here, as a clause; None where the build file has them."""
    if build.kernel_digest != kernel_digest:
        raise DeviceError(
            "The kernel's build file was made from another state of its sources; delete the run's "
            "folder 'builds' and start again."
        )
    if device.target not in build.targets:
        held = "', '".join(sorted(build.targets))
        return f"the build file holds machine code for '{held}', this device runs '{device.target}'"
    missing = set(space.variants) - build.targets[device.target].keys()
    return f"the build file lacks {', '.join(sorted(missing))}" if missing else None


def _compiled_here(
    device: Device, folder: KernelFolder, space: ShardSpace, reason: str | None
) -> dict[str, VariantBuild]:
    made, request, target = {}, device.request, device.target
    for variant in space.variants:
        before = swap(mark(f"variant '{variant}' was compiled"))
        try:
            made[variant] = compile_here(request, folder, space.dtype, variant, target)
        except NoDeviceError as err:
            if reason is None:
                raise
            raise DeviceError(f"{reason[0].upper()}{reason[1:]}, and: {err}") from err
        finally:
            swap(before)
        if made[variant].failure is not None:
            log.error("variant %s: %s\n%s", variant, made[variant].failure, made[variant].log)
    return made


def _loaded(
    device: Device, folder: KernelFolder, dtype: str, made: Mapping[str, VariantBuild]
) -> tuple[Builds, dict[str, str]]:
    """The programs of what was compiled, and why a variant had to be compiled anew all the same.

    It is where the runtime gave no machine code, or does not take it back.
    """
    builds = Builds({}, {})
    anew: dict[str, str] = {}
    for variant, build in made.items():
        if build.error is not None:
            builds.refuse(variant, build.error)
            continue
        try:
            builds.programs[variant] = device.load(build)
        except BuildError as err:
            anew[variant] = str(err)
    compiled = build_variants(device, folder, dtype, list(anew))
    return Builds(builds.programs | compiled.programs, builds.failures | compiled.failures), anew


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
