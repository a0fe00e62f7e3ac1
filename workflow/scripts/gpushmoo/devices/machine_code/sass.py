"""Read the memory accesses of a kernel from its machine code with nvdisasm.

The compiler may optimize loads away, narrow them, or move them out of their loop. Then the kernel
is fast for the wrong reason, although its result is right. Only the machine code shows this.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.code_path import CodePath
from ...core.errors import DeviceError, NoDeviceError, WorkloadError
from ...workloads.contract import Access
from ...workloads.loader import KernelFolder
from .control_flow import Instruction, code_path, looping


@dataclass(frozen=True)
class AccessCount:
    """Instructions of one kernel that access memory in the same way.

    Attributes
    ----------
    space
        ``global``, ``texture``, ``surface``, ``shared`` or ``generic`` (not known to the compiler).
    kind
        ``load`` or ``store``.
    width
        Bytes that one instruction moves for one thread. 0 for a copy of a whole tile, which one
        thread starts for its block.
    count, in_loop
        Number of instructions, and of those inside a loop.
    """

    space: str
    kind: str
    width: int
    count: int
    in_loop: int


@dataclass(frozen=True)
class EntryCode:
    """Contents of the machine code of one kernel.

    Attributes
    ----------
    entry
        Name of the kernel function.
    registers
        Registers of a thread.
    spill_loads, spill_stores
        Instructions that access local memory, including local arrays.
    accesses
        Memory accesses.
    path
        Path of a thread through the code, or None in older records.
    shared_bytes
        Static shared memory of a block in bytes, including the reserved part.
    """

    entry: str
    registers: int
    spill_loads: int
    spill_stores: int
    accesses: tuple[AccessCount, ...]
    path: CodePath | None = None
    shared_bytes: int = 0


# Atomics and reductions are neither loads nor stores. LDGSTS copies from global to shared memory,
# _BULK copy whole tiles between them; UBLKCP.G.S and UTMASTG store to global memory.
_BULK = {"UBLKCP", "UTMALDG", "UTMASTG"}
_NAMES = {
    "global": ("LDG", "LDGSTS", "STG", *sorted(_BULK)),
    "generic": ("LD", "ST"),
    "local": ("LDL", "STL"),
    "shared": ("LDS", "STS"),
    "surface": ("SULD", "SUST"),
    "texture": ("TEX", "TLD", "TLD4", "TXD"),
}
_SPACES = {name: space for space, names in _NAMES.items() for name in names}
_STORES = {"ST", "STG", "STL", "STS", "SUST", "UTMASTG"}
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_SECTION = re.compile(
    r'^\s*\.section\s+\.text\.(\S+?),"ax"(.*?)(?=^\s*\.section\s|\Z)', re.M | re.S
)
_LINE = re.compile(
    r"^\s*(?:(?P<label>[^\s:/]+):"
    r"|/\*[0-9a-f]+\*/\s+(?P<guard>@!?\w+\s+)?(?P<op>[A-Z][\w.]*)\s*(?P<operands>[^;]*);)\s*$",
    re.M,
)
_REGISTERS = re.compile(
    r"EIATTR_REGCOUNT\b.*?index@\((\S+?)\)\s+/\*[0-9a-f]+\*/\s+\.word\s+0x([0-9a-f]+)", re.S
)
_SHARED = re.compile(r"^\.nv\.shared\.(\S+):\s*\.zero\s+(\d+)", re.M)


def listing(cubin: bytes) -> str:
    """Return nvdisasm's text for machine code.

    Parameters
    ----------
    cubin
        The machine code.

    Raises
    ------
    NoDeviceError
        If nvdisasm is missing.
    DeviceError
        If nvdisasm fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        # Its analysis of the stack of branches, a third of its time, adds nothing to the text.
        command = [_nvdisasm(), "--no-dataflow", str(path)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        cause = " ".join(done.stderr.split()).removesuffix(".")
        raise DeviceError(
            f"nvdisasm cannot read the kernel's machine code ({cause}); install a version of "
            "nvidia-cuda-nvdisasm that knows this device."
        )
    return done.stdout


def _nvdisasm() -> str:
    spec = importlib.util.find_spec("nvidia")
    roots = (spec.submodule_search_locations if spec is not None else None) or ()
    found = sorted(path for root in roots for path in Path(root).glob("**/bin/nvdisasm"))
    executable = str(found[0]) if found else shutil.which("nvdisasm")
    if executable is None:
        raise NoDeviceError(
            "nvdisasm is missing, so the kernels' machine code cannot be checked; install the "
            "package nvidia-cuda-nvdisasm, part of the extras 'cuda12' and 'cuda13'."
        )
    return executable


def parse(text: str) -> dict[str, EntryCode]:
    """Return the kernels in a text of nvdisasm, by name.

    Raises
    ------
    DeviceError
        If the text has another format.
    """
    registers = {entry: int(count, 16) for entry, count in _REGISTERS.findall(text)}
    found = {}
    shared = {entry: int(count) for entry, count in _SHARED.findall(text)}
    for entry, code in _entries(text).items():
        if entry not in registers:
            raise DeviceError(
                f"nvdisasm reports no registers of kernel '{entry}'; install another version of "
                "nvidia-cuda-nvdisasm."
            )
        found[entry] = _entry_code(entry, registers[entry], shared.get(entry, 0), code)
    return found


def _entries(text: str) -> dict[str, list[Instruction]]:
    """Return the instructions of each kernel in nvdisasm's text, without device functions."""
    sections = _SECTION.findall(text)
    return {entry: _read(body) for entry, body in sections if "STO_CUDA_ENTRY" in body}


def _read(body: str) -> list[Instruction]:
    lines = list(_LINE.finditer(body))
    labels: dict[str, int] = {}
    place = 0
    for line in lines:
        if line["op"]:
            place += 1
        else:
            labels[line["label"]] = place
    return [_instruction(line, labels) for line in lines if line["op"]]


def _instruction(line: re.Match[str], labels: Mapping[str, int]) -> Instruction:
    name, *flags = line["op"].split(".")
    named = re.findall(r"(?<=`\()[^)]+|\.L_\w+", line["operands"])
    targets = tuple(labels[label] for label in named if label in labels)
    return Instruction(
        (line["guard"] or "").strip(), name, tuple(flags), line["operands"].strip(), targets
    )


def _entry_code(
    entry: str, registers: int, shared_bytes: int, code: Sequence[Instruction]
) -> EntryCode:
    inside = looping(code)
    ways = [(way, place) for place, i in enumerate(code) if (way := _access(i))]
    counts = Counter(way for way, _ in ways)
    looped = Counter(way for way, place in ways if place in inside)
    spills = Counter(kind for (space, kind, _), _ in ways if space == "local")
    accesses = [
        AccessCount(*way, counts[way], looped[way]) for way in sorted(counts) if way[0] != "local"
    ]
    return EntryCode(
        entry,
        registers,
        spills["load"],
        spills["store"],
        tuple(accesses),
        code_path(code, _memory_access),
        shared_bytes,
    )


def _memory_access(instruction: Instruction) -> tuple[str, int] | None:
    """Return kind and width in bytes of an access beyond the multiprocessor, or None."""
    way = _access(instruction)
    return None if way is None or way[0] in {"local", "shared"} else way[1:]


def _access(instruction: Instruction) -> tuple[str, str, int] | None:
    """Return space, kind and width in bytes of a memory access, or None without one."""
    space = _SPACES.get(instruction.name)
    if space is None or instruction.never_runs():
        return None
    stores = instruction.name in _STORES
    if instruction.name in _BULK:
        copied = instruction.flags[:2]
        kind = "store" if stores or copied == ("G", "S") else "load"
        return "shared" if copied == ("S", "S") else space, kind, 0
    kind = "store" if stores else "load"
    if space == "texture":
        # The last operand is the mask of the channels that are fetched, unless these are all four.
        mask = re.search(r", 0x([0-9a-f]+)$", instruction.operands)
        return space, kind, 4 * (int(mask[1], 16).bit_count() if mask else 4)
    return space, kind, next((_WIDTHS[f] for f in instruction.flags if f in _WIDTHS), 4)


def complaints(code: EntryCode, expected: Sequence[Access]) -> list[str]:
    """Return a sentence for each expected memory access that the machine code lacks.

    Parameters
    ----------
    code
        Contents of the machine code.
    expected
        Expected accesses.
    """
    held = ", ".join(map(_describe, code.accesses)) or "no load and no store"
    return [
        f"Kernel '{code.entry}': expected {_wanted(want)}, but {fault}; the machine code holds "
        f"{held}."
        for want in expected
        if (fault := _fault(code, want))
    ]


def _fault(code: EntryCode, want: Access) -> str | None:
    """Return how the code fails to contain the access `want`, or None if it contains it."""
    here = [a for a in code.accesses if a.kind == want.kind and _may_be(a.space, want.space)]
    fitting = [a for a in here if want.width in (None, a.width) or not a.width]
    looped = sum(a.in_loop for a in fitting)
    held = looped if want.in_loop else sum(a.count for a in fitting)
    if held >= want.at_least:
        return None
    if not here:
        return "it was optimised away"
    if want.width is not None and not fitting:
        widths = sorted({a.width for a in here})
        change = "narrowed" if widths[-1] < want.width else "changed"
        return f"it was {change} to {' and '.join(map(str, widths))} bytes"
    if want.in_loop and not looped:
        return "it was hoisted out of its loop"
    return f"there are too few ({held})"


def _may_be(space: str, wanted: str | None) -> bool:
    """Return whether an access in `space` may be the expected one. A generic one may be global."""
    if wanted is None:
        return space != "shared"
    return space == wanted or (space, wanted) == ("generic", "global")


def _wanted(want: Access) -> str:
    what = f"{want.space} {want.kind}" if want.space else want.kind
    width = f" of {want.width} bytes" if want.width is not None else ""
    many = f"at least {want.at_least} {what}s" if want.at_least > 1 else f"a {what}"
    loop = " inside a loop" if want.in_loop else ""
    return many + width + loop


def _describe(found: AccessCount) -> str:
    what = f"{found.space} {found.kind}" + "s" * (found.count > 1)
    size = f"{found.width} bytes" if found.width else "a tile"
    return f"{found.count} {what} of {size} ({found.in_loop} in a loop)"


log = logging.getLogger(__name__)


def failed_check(
    folder: KernelFolder, dtype: str, variant: str, entries: Iterable[EntryCode]
) -> str | None:
    """Return a sentence on why this machine code must not be timed, or None if it may be.

    All reasons are logged.

    Parameters
    ----------
    folder
        The kernel.
    dtype, variant
        Names of the element type and of the variant.
    entries
        Contents of the machine code.
    """
    accesses = folder.workload.accesses
    try:
        faults = [
            fault
            for code in entries
            for fault in complaints(code, accesses(code.entry, dtype, variant))
        ]
    except WorkloadError as err:
        log.error("%s", err)
        return str(err)
    if not faults:
        return None
    log.error("%s, %s:\n%s", dtype, variant, "\n".join(faults))
    more = f" And {len(faults) - 1} more, in the log." if len(faults) > 1 else ""
    return f"what is to be timed is not run: {faults[0]}{more}"
