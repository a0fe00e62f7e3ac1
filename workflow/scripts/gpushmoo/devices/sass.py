"""What the compiler made of a kernel: its memory accesses, read from the machine code by nvdisasm.

A timed kernel whose loads were optimised away, narrowed or moved out of their loop is fast for the
wrong reason, and its result may still be right. Only the machine code tells.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..workload import Access
from .base import DeviceError, NoDeviceError


@dataclass(frozen=True)
class AccessCount:
    """The instructions of one kernel that access memory in one way.

    `space` is ``global``, ``texture``, ``surface``, ``shared`` or ``generic`` (the compiler could
    not tell which); `kind` is ``load`` or ``store``; `width` is in bytes that one instruction moves
    for one thread. `count` counts the instructions, `in_loop` those of them inside a loop.
    """

    space: str
    kind: str
    width: int
    count: int
    in_loop: int


@dataclass(frozen=True)
class EntryCode:
    """The machine code of one kernel; `registers` are a thread's.

    Spills count the instructions that access local memory, a thread's local arrays included.
    """

    entry: str
    registers: int
    spill_loads: int
    spill_stores: int
    accesses: tuple[AccessCount, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, for `from_json`."""
        return asdict(self) | {"accesses": [asdict(a) for a in self.accesses]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EntryCode:
        """The inverse of `to_json`."""
        return cls(**{**value, "accesses": tuple(AccessCount(**a) for a in value["accesses"])})


@dataclass(frozen=True)
class _Instruction:
    """One line of a listing: ``@!P0 LDG.E.64 R2, [R4]`` has the name LDG and the flags E, 64.

    `targets` are the places in the listing that a branch or a call names.
    """

    guard: str
    name: str
    flags: tuple[str, ...]
    operands: str
    targets: tuple[int, ...]

    def falls_through(self) -> bool:
        """Whether the next instruction may follow."""
        # BRA.DIV, BRA.CONV and `BRA P0, ...` are conditional without a guard.
        plain = self.name == "BRA" and not self.flags and self.operands.startswith("`(")
        return bool(self.guard) or not (plain or self.name in {"EXIT", "RET", "BRX", "JMP", "JMX"})


# Atomics and reductions are neither loads nor stores; LDGSTS copies from global to shared memory.
_NAMES = {
    "global": ("LDG", "LDGSTS", "STG"),
    "generic": ("LD", "ST"),
    "local": ("LDL", "STL"),
    "shared": ("LDS", "STS"),
    "surface": ("SULD", "SUST"),
    "texture": ("TEX", "TLD", "TLD4", "TXD"),
}
_SPACES = {name: space for space, names in _NAMES.items() for name in names}
_STORES = {"ST", "STG", "STL", "STS", "SUST"}
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


def disassemble(cubin: bytes) -> dict[str, EntryCode]:
    """The machine code of all kernels in `cubin`, by entry. Raises what `listing` does."""
    return parse(listing(cubin))


def listing(cubin: bytes) -> str:
    """nvdisasm's text for `cubin`.

    Raises NoDeviceError when nvdisasm is missing, DeviceError when it cannot read `cubin`.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([_nvdisasm(), path], capture_output=True, text=True, check=False)
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
    """The kernels in nvdisasm's text, by entry. Raises DeviceError when it is not understood."""
    registers = {entry: int(count, 16) for entry, count in _REGISTERS.findall(text)}
    found = {}
    for entry, code in _entries(text).items():
        if entry not in registers:
            raise DeviceError(
                f"nvdisasm tells no registers of kernel '{entry}'; install another version of "
                "nvidia-cuda-nvdisasm."
            )
        found[entry] = _entry_code(entry, registers[entry], code)
    return found


def sequence(text: str, entry: str, space: str) -> str:
    """The loads (L) and stores (S) of `entry` in `space`, in the order of its code.

    Raises KeyError when the text holds no kernel `entry`.
    """
    ways = [way for i in _entries(text)[entry] if (way := _access(i)) and way[0] == space]
    return "".join(kind[0].upper() for _, kind, _ in ways)


def _entries(text: str) -> dict[str, list[_Instruction]]:
    """The kernels in nvdisasm's text; sections of plain device functions are left out."""
    sections = _SECTION.findall(text)
    return {entry: _read(body) for entry, body in sections if "STO_CUDA_ENTRY" in body}


def _read(body: str) -> list[_Instruction]:
    lines = list(_LINE.finditer(body))
    labels: dict[str, int] = {}
    place = 0
    for line in lines:
        if line["op"]:
            place += 1
        else:
            labels[line["label"]] = place
    return [_instruction(line, labels) for line in lines if line["op"]]


def _instruction(line: re.Match[str], labels: Mapping[str, int]) -> _Instruction:
    name, *flags = line["op"].split(".")
    named = re.findall(r"(?<=`\()[^)]+|\.L_\w+", line["operands"])
    targets = tuple(labels[label] for label in named if label in labels)
    return _Instruction(
        (line["guard"] or "").strip(), name, tuple(flags), line["operands"].strip(), targets
    )


def _entry_code(entry: str, registers: int, code: Sequence[_Instruction]) -> EntryCode:
    looping = _looping(code)
    ways = [(way, place in looping) for place, i in enumerate(code) if (way := _access(i))]
    counts = Counter(way for way, _ in ways)
    looped = Counter(way for way, inside in ways if inside)
    spills = Counter(kind for (space, kind, _), _ in ways if space == "local")
    accesses = [
        AccessCount(*way, counts[way], looped[way]) for way in sorted(counts) if way[0] != "local"
    ]
    return EntryCode(entry, registers, spills["load"], spills["store"], tuple(accesses))


def _access(instruction: _Instruction) -> tuple[str, str, int] | None:
    """Space, kind and width in bytes of a memory access; None for every other instruction."""
    # ptxas puts `@!PT LDS RZ, [RZ]` before asynchronous copies: it never runs.
    space = _SPACES.get(instruction.name)
    if space is None or instruction.guard == "@!PT":
        return None
    kind = "store" if instruction.name in _STORES else "load"
    if space == "texture":
        # The last operand is the mask of the channels that are fetched, unless these are all four.
        mask = re.search(r", 0x([0-9a-f]+)$", instruction.operands)
        return space, kind, 4 * (int(mask[1], 16).bit_count() if mask else 4)
    return space, kind, next((_WIDTHS[f] for f in instruction.flags if f in _WIDTHS), 4)


def _looping(code: Sequence[_Instruction]) -> set[int]:
    """Places of the instructions that may run again and again, those of callees included.

    Every loop holds a branch backwards; what is reached from its target and reaches the branch is
    the loop. Blocks that ptxas moved behind the last EXIT jump backwards, too, but make no loop.
    """
    ahead: list[list[int]] = []
    for place, i in enumerate(code):
        jumps = list(i.targets) if i.name in {"BRA", "BRX", "JMP", "JMX"} else []
        ahead.append(jumps + [place + 1] * (i.falls_through() and place + 1 < len(code)))
    behind: list[list[int]] = [[] for _ in code]
    for source, targets in enumerate(ahead):
        for target in targets:
            behind[target].append(source)
    looping: set[int] = set()
    for source, targets in enumerate(ahead):
        for target in (t for t in targets if t <= source):
            looping |= _reach([target], ahead) & _reach([source], behind)
    callees = [list(i.targets) if i.name == "CALL" else [] for i in code]
    within = [steps + callee for steps, callee in zip(ahead, callees, strict=True)]
    return looping | _reach([target for place in looping for target in callees[place]], within)


def _reach(starts: Sequence[int], steps: Sequence[Sequence[int]]) -> set[int]:
    seen, waiting = set(starts), list(starts)
    while waiting:
        for place in steps[waiting.pop()]:
            if place not in seen:
                seen.add(place)
                waiting.append(place)
    return seen


def complaints(code: EntryCode, expected: Sequence[Access]) -> list[str]:
    """A sentence for each of `expected` that the machine code does not hold as it should."""
    held = ", ".join(map(_describe, code.accesses)) or "no load and no store"
    return [
        f"Kernel '{code.entry}': expected {_wanted(want)}, but {fault}; the machine code holds "
        f"{held}."
        for want in expected
        if (fault := _fault(code, want))
    ]


def _fault(code: EntryCode, want: Access) -> str | None:
    """What became of `want`; None when the code holds it."""
    here = [a for a in code.accesses if a.kind == want.kind and _may_be(a.space, want.space)]
    fitting = [a for a in here if want.width in (None, a.width)]
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
    """Whether an access in `space` may be the wanted one; a generic one may be a global one."""
    if wanted is None:
        return space != "shared"
    return space == wanted or (space, wanted) == ("generic", "global")


def _wanted(want: Access) -> str:
    what = f"{want.space} {want.kind}" if want.space else want.kind
    width = f" of {want.width} bytes" if want.width is not None else ""
    many = f"at least {want.at_least} {what}s" if want.at_least > 1 else f"a {what}"
    return many + width + (" inside a loop" if want.in_loop else "")


def _describe(found: AccessCount) -> str:
    what = f"{found.space} {found.kind}" + "s" * (found.count > 1)
    return f"{found.count} {what} of {found.width} bytes ({found.in_loop} in a loop)"
