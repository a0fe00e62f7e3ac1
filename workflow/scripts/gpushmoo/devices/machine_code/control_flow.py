"""Find the path of a thread through a kernel's machine code, with its loops and memory accesses.

The compiler unrolls loops, keeps a second copy of a loop's body for the rest, and decides how many
loads are in flight before the first result is needed. Only the machine code shows this. `code_path`
compares all paths without a backward jump. It returns the path with the most memory accesses, and
of these the shortest: the path of a thread in the middle of the data. The loop on it with the most
accesses is the `turn`, which runs repeatedly. The rest runs `once`, and a loop around the turn
counts as if it ran once. If one loop only loads and another
one only stores, the data go from one to the other through shared memory. Both run equally often,
and the `turn` is both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile

from ...core.code_path import CodePath, PathPart


@dataclass(frozen=True)
class Instruction:
    """An instruction of the machine code. ``@!P0 LDG.E.64 R2, [R4]`` has name LDG and flags E, 64.

    `guard` is ``@!P0`` in this example. `targets` are the indices of instructions that it names.
    """

    guard: str
    name: str
    flags: tuple[str, ...]
    operands: str
    targets: tuple[int, ...]

    def falls_through(self) -> bool:
        """Return whether the next instruction may follow this one."""
        # BRA.DIV, BRA.CONV, `BRA P0, ...` and `EXIT P0` are conditional without a guard.
        plain = self.name == "BRA" and not self.flags and self.operands.startswith("`(")
        leaves = self.name == "EXIT" and not self.operands
        return bool(self.guard) or not (
            plain or leaves or self.name in {"RET", "BRX", "JMP", "JMX"}
        )

    def never_runs(self) -> bool:
        """Return whether the guard of the instruction is always false."""
        # ptxas puts `@!PT LDS RZ, [RZ]` before asynchronous copies.
        return self.guard in {"@!PT", "@!UPT"}


_JUMPS = {"BRA", "BRX", "JMP", "JMX"}
# They begin with an operand that they read.
_NO_RESULT = {
    *_JUMPS,
    "BAR",
    "BPT",
    "BREAK",
    "BSYNC",
    "CALL",
    "EXIT",
    "KILL",
    "NANOSLEEP",
    "R2B",
    "RET",
    "WARPSYNC",
}
# Only their first operand is a result, whatever follows it.
_ONE_RESULT = {"FCHK", "P2R", "R2P", "UP2UR", "UR2UP"}
_DOUBLES = {"DADD", "DFMA", "DMNMX", "DMUL", "DSETP"}
_SHIFTS = {"SHF", "USHF"}  # SHF.L.U64 names both halves of its 64 bits
_IMAGES = {"SULD", "SUST", "TEX", "TLD", "TLD4", "TXD"}
# Registers of an operand, by flag.
_REGISTERS = {"64": 2, "128": 4, "256": 4, "WIDE": 2, "U64": 2, "S64": 2, "F64": 2}
# Memory of a thread or a block takes part as if it were one register each.
_LOADED = {"LDL": "local", "LDS": "shared", "LDSM": "shared", "ATOMS": "shared"}
_STORED = {"STL": "local", "STS": "shared", "LDGSTS": "shared", "ATOMS": "shared"}

_LABEL = re.compile(r"`\(.*?\)|\(\*.*?\*\)")  # may hold what looks like a register
_RESULT = re.compile(r"U?(?:R(?:\d+|Z)|P(?:\d|T|R))")
_NAME = re.compile(r"\b(U?)(?:R(\d+)|P(\d|R))\b(\.64)?")
_ADDRESS = re.compile(r"\[[^]]*\]")


@cache
def touched_registers(i: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers and predicates that an instruction reads, and those that it writes.

    If the width of an operand is not known, the largest possible width counts.

    Parameters
    ----------
    i
        The instruction.
    """
    if i.never_runs():
        return frozenset(), frozenset()
    operands = _LABEL.sub("", i.operands).split(", ")
    results = _results(i, operands)
    address_span = 4 if i.name in _IMAGES else 2 if "E" in i.flags else 1
    reads = {_LOADED.get(i.name, ""), *_names(i.guard)}
    for index, source in enumerate(operands[len(results) :]):
        reads.update(_names(source, _span_of_source(i, index), address_span))
    writes = {_STORED.get(i.name, "")}.union(*(_names(r, _span_of_result(i)) for r in results))
    return frozenset(reads - {""}), frozenset(writes - {""})


def _results(i: Instruction, operands: Sequence[str]) -> list[str]:
    """Return the leading operands that the instruction writes.

    They are a register and the predicates of its carries (``IADD3 R2, P0, PT, ...``), a predicate
    and a register (``LOP3 P0, R2, ...``), or two predicates (``ISETP P0, PT, ...``).
    """
    bare = [] if i.name in _NO_RESULT else list(takewhile(_RESULT.fullmatch, operands))
    if len(bare) == len(operands) > 1:
        bare.pop()  # something must be read
    if i.name in _ONE_RESULT:
        return bare[:1]
    kinds = "".join("P" if "P" in operand else "R" for operand in bare)
    # What one register cannot name, two do.
    pair = i.name in _IMAGES or "256" in i.flags
    written = re.match(r"P?RR?" if pair else r"P?RP{0,2}|P{0,2}", kinds)
    return bare[: written.end()] if written else []


def _names(text: str, span: int = 1, address_span: int = 1) -> list[str]:
    """Return the registers that `text` names: `span` from each, `address_span` in brackets."""
    parts = [(part, address_span) for part in _ADDRESS.findall(text)]
    parts.append((_ADDRESS.sub("", text), span))
    found: list[str] = []
    for part, count in parts:
        for uniform, number, predicate, suffix in _NAME.findall(part):
            if predicate:
                numbers = "01234567" if predicate == "R" else predicate  # PR: all of them
                found += [f"{uniform}P{n}" for n in numbers]
            else:
                first = int(number)
                found += [f"{uniform}R{first + k}" for k in range(max(count, 2 if suffix else 1))]
    return found


def _span_of_source(i: Instruction, index: int) -> int:
    """Return how many registers the source operand at `index` may have."""
    if i.name in _IMAGES or "MMA" in i.name:
        return 4
    if i.name in _SHIFTS:
        return 1
    if "WIDE" in i.flags:
        return 2 if index == 2 else 1  # 32 bits by 32 bits, plus 64 bits
    return _widest(i)


def _span_of_result(i: Instruction) -> int:
    """Return how many registers a result may have."""
    if i.name in _SHIFTS:
        return 1
    if "MMA" in i.name or i.name == "LDSM":
        return 4
    pair = i.name in _IMAGES or (i.name == "CS2R" and "32" not in i.flags)
    return max(_widest(i), 2 if pair else 1)


def _widest(i: Instruction) -> int:
    return max([2 if i.name in _DOUBLES else 1, *(_REGISTERS.get(flag, 1) for flag in i.flags)])


def _successors(code: Sequence[Instruction]) -> list[list[int]]:
    """Return for each instruction the indices of those that may follow, as calls return."""
    ahead: list[list[int]] = []
    for place, i in enumerate(code):
        jumps = list(i.targets) if i.name in _JUMPS else []
        ahead.append(jumps + [place + 1] * (i.falls_through() and place + 1 < len(code)))
    return ahead


def _reached(
    starts: Iterable[int], successors: Sequence[Sequence[int]], without: int = -1
) -> frozenset[int]:
    """Return the indices that can be reached from `starts` without passing the index `without`."""
    seen = set(starts) - {without}
    waiting = list(seen)
    while waiting:
        for place in successors[waiting.pop()]:
            if place not in seen and place != without:
                seen.add(place)
                waiting.append(place)
    return frozenset(seen)


def looping(code: Sequence[Instruction]) -> frozenset[int]:
    """Return the indices of instructions that may run repeatedly, also in called functions.

    Parameters
    ----------
    code
        Instructions of a kernel in the order of the listing.
    """
    ahead = _successors(code)
    found = frozenset().union(*_loops(ahead).values())
    callees = [list(i.targets) if i.name == "CALL" else [] for i in code]
    within = [places + callee for places, callee in zip(ahead, callees, strict=True)]
    return found | _reached((t for place in found for t in callees[place]), within)


def _loops(ahead: Sequence[Sequence[int]]) -> dict[int, frozenset[int]]:
    """Return the indices of the instructions in each natural loop, by index of its head.

    The head is the first instruction. A backward jump to it closes a loop if all paths to the jump
    pass the head. Blocks that ptxas moved behind the last EXIT jump back without a loop.
    """
    behind: list[list[int]] = [[] for _ in ahead]
    for source, targets in enumerate(ahead):
        for target in targets:
            behind[target].append(source)
    found: dict[int, frozenset[int]] = {}
    for source, targets in enumerate(ahead):
        # A jump to itself is how a listing ends.
        for head in (t for t in targets if t < source):
            if source in _reached([0], ahead, head) or source not in _reached([head], ahead):
                continue
            body = _reached([source], behind, head) | {head}
            found[head] = found.get(head, frozenset()) | body
    return found


# Kind and width in bytes of the memory access of an instruction, if it has one.
AccessOf = Callable[[Instruction], tuple[str, int] | None]


def code_path(code: Sequence[Instruction], access: AccessOf) -> CodePath:
    """Return the path of a thread through one kernel, as the module describes it.

    Parameters
    ----------
    code
        Instructions of the kernel in the order of the listing.
    access
        Returns kind and width of an instruction's memory access, or None.
    """
    ahead = _successors(code)
    loops = _loops(ahead)
    path = _busiest(code, _forward(ahead, loops), access)
    path, at_edge = _without_alternatives(code, path, access)
    kinds = {p: found[0] for p in path if (found := access(code[p])) is not None}
    turn: frozenset[int] = frozenset()
    missing = set(kinds.values())
    while missing:
        # A loop with the same kind of access as the turn is the rest of an unrolled one.
        bodies = [b for b in loops.values() if {kinds[p] for p in b & kinds.keys()} & missing]
        bodies = [b for b in bodies if {kinds[p] for p in b & kinds.keys()} <= missing]
        if not bodies:
            break
        # If an outer loop contains no more accesses than the inner one, the inner one is the turn.
        body = max(bodies, key=lambda body: (len(body & kinds.keys()), -len(body)))
        turn |= body
        missing -= {kinds[p] for p in body & kinds.keys()}
    step = _step(code, loops.values(), access)
    once = [p for p in path if p not in turn and p not in step]
    ran = [p for p in path if p in turn]
    outer = frozenset().union(*(b for b in loops.values() if b & turn)) - turn
    around = [p for p in path if p in outer]
    parts = [_part(code, part, access) for part in (once, ran, sorted(step), around)]
    # The loads of a tile's edge do not depend on each other and are waited for together.
    parts[0] = replace(parts[0], edge_waits=int(bool(at_edge - turn)))
    parts[1] = replace(parts[1], edge_waits=int(bool(at_edge & turn)))
    return CodePath(*parts)


def _without_alternatives(
    code: Sequence[Instruction], path: Sequence[int], access: AccessOf
) -> tuple[list[int], frozenset[int]]:
    """Return the path without instructions that a thread skips if it runs others of the path.

    If accesses have a predicate and other accesses its opposite, a thread runs only one of the two.
    The way with fewer accesses is left out. If one way loads from shared memory and the other from
    beyond, the block's tile contains what threads in its middle need. Then the other way is left
    out, and its places are the second result: threads at the edge of the tile run them.
    """
    skipped: set[int] = set()
    at_edge: set[int] = set()
    guarded: dict[str, tuple[list[int], list[int]]] = {}

    def close(predicate: str) -> None:
        ways = sorted(
            guarded.pop(predicate, ([], [])),
            key=lambda way: sum(access(code[p]) is not None for p in way),
        )
        fewer, more = ([p for p in way if access(code[p])] for way in ways)
        if fewer:
            skipped.update(ways[0])
        elif more and any(_loads_shared(code[p]) for p in ways[0]):
            skipped.update(ways[1])
            at_edge.update(more)

    for place in path:
        instruction = code[place]
        predicate = instruction.guard.lstrip("@!")
        if predicate and instruction.name not in _JUMPS:
            negated = instruction.guard.startswith("@!")
            guarded.setdefault(predicate, ([], []))[negated].append(place)
        for written in touched_registers(instruction)[1] & guarded.keys():
            close(written)
    for predicate in list(guarded):
        close(predicate)
    return [p for p in path if p not in skipped], frozenset(at_edge)


def _step(
    code: Sequence[Instruction], loops: Iterable[frozenset[int]], access: AccessOf
) -> frozenset[int]:
    """Return the places of the shortest loop with a barrier and no access, or none.

    The path may lead around it: a block of one thread runs it not once.
    """
    steps = (
        body
        for body in loops
        if any(_is_barrier(code[p]) for p in body) and not any(access(code[p]) for p in body)
    )
    return min(steps, key=len, default=frozenset())


def _loads_shared(i: Instruction) -> bool:
    return i.name in {"LDS", "LDSM"}


def _is_barrier(i: Instruction) -> bool:
    return i.name == "BAR" and "SYNC" in i.flags


def _forward(
    ahead: Sequence[Sequence[int]], loops: Mapping[int, frozenset[int]]
) -> list[tuple[int, ...]]:
    """Return the successors without backward jumps, which instead lead to exits of their loop."""
    forward = [set(targets) for targets in ahead]
    # The inner loops first: where they are left may be where the outer one begins again.
    for head, body in sorted(loops.items(), key=lambda loop: len(loop[1])):
        left = {t for p in body for t in forward[p] if t not in body}
        for place in body:
            if head in forward[place] and place != head:
                forward[place] = (forward[place] - {head}) | left
    for place, targets in enumerate(forward):
        targets.discard(place)
    return [tuple(sorted(targets)) for targets in forward]


def _busiest(
    code: Sequence[Instruction], forward: Sequence[Sequence[int]], access: AccessOf
) -> list[int]:
    """Return the indices on the path with the most accesses from first instruction to an end."""
    order = []
    state = [0] * len(code)
    waiting = [(0, False)] if code else []
    ahead: list[list[int]] = [[] for _ in code]
    while waiting:
        place, left = waiting.pop()
        if left:
            state[place] = 2
            order.append(place)
        elif not state[place]:
            state[place] = 1
            waiting.append((place, True))
            for target in forward[place]:
                if state[target] == 0:
                    waiting.append((target, False))
    position = {place: i for i, place in enumerate(order)}
    best: dict[int, tuple[int, int]] = {}
    following: dict[int, int] = {}
    for place in order:
        ahead[place] = [t for t in forward[place] if position[t] < position[place]]
        ways = [(best[t], t) for t in ahead[place]]
        (accesses, length), target = max(ways, default=((0, 0), -1))
        following[place] = target
        best[place] = (accesses + (access(code[place]) is not None), length - 1)
    path = []
    place = 0 if code else -1
    while place >= 0:
        path.append(place)
        place = following[place]
    return path


def _part(code: Sequence[Instruction], places: Sequence[int], access: AccessOf) -> PathPart:
    kinds: dict[str, list[int]] = {"load": [], "store": []}
    pending: set[str] = set()
    shared: set[str] = set()
    waits = shared_waits = 0
    for instruction in (code[p] for p in places):
        reads, writes = touched_registers(instruction)
        if pending & reads:
            waits += 1
            pending = set()
        if shared & reads:
            shared_waits += 1
            shared = set()
        if _loads_shared(instruction):
            shared |= writes
        found = access(instruction)
        if found is not None:
            kinds[found[0]].append(found[1])
            pending |= writes if found[0] == "load" else set()
    loads, stores = kinds["load"], kinds["store"]
    return PathPart(
        len(places),
        len(loads),
        len(stores),
        max(loads, default=0),
        max(stores, default=0),
        waits + bool(pending),
        sum(_is_barrier(code[p]) for p in places),
        shared_waits + bool(shared),
    )
