"""What a kernel's variants are built into, before any of them is measured."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .contract import TypedError, WorkloadError
from .devices.base import BuildError, Device, Program
from .dtypes import DTYPES
from .kernels import KernelFolder
from .last_words import mark, swap

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
        """1."""
        return 1

    def registers(self, entry: str) -> int | None:
        """None."""
        return None


def build_variants(
    device: Device, folder: KernelFolder, dtype: str, names: Sequence[str]
) -> Builds:
    """Compile each variant once; a compiler's message goes to the log, whole."""
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
