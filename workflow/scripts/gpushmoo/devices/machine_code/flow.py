"""Where a kernel's machine code may go: which arguments decide about it, and what one thread runs.

`deciding` follows every argument from constant memory through registers and predicates to the
branches, exits and guards that depend on it. It knows instructions only by how nvdisasm writes
them: results come first. Where that leaves a doubt the argument counts as passed on, so that the
doubt makes a complaint and not a pass. The limits:

* An argument's trace is lost in global memory, behind generic addresses, in what threads tell each
  other by barriers, in functions called by address, and in branches by a table that nvdisasm does
  not name. Local and shared memory are followed, each as one place.
* What follows a test counts as decided by it even if both ways lead there. In a loop that ends with
  the test this is all of the loop.
* Functions that are called from several places return to all of these.

`code_path` counts a thread's instructions, accesses and waits for loads, for the model of a
launch's time: neither the source nor the list of accesses tells them, since the compiler unrolls
loops, keeps a second copy of a loop's body for the rest, and decides how many loads are on their
way before the first of their results is needed. Of all ways through the code without a step back,
the path is that with the most accesses to memory, of these the shortest: what a thread in the
middle of the data runs. Of the loops on it the one with the most accesses is the `turn`, which runs
again and again; all else is `once`. A loop around that loop counts as if it ran once.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

from ...core.code_path import CodePath, PathPart


@dataclass(frozen=True)
class Instruction:
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
        # BRA.DIV, BRA.CONV, `BRA P0, ...` and `EXIT P0` are conditional without a guard.
        plain = self.name == "BRA" and not self.flags and self.operands.startswith("`(")
        leaves = self.name == "EXIT" and not self.operands
        return bool(self.guard) or not (
            plain or leaves or self.name in {"RET", "BRX", "JMP", "JMX"}
        )

    def never_runs(self) -> bool:
        """Whether the guard is false, whatever happens."""
        # ptxas puts `@!PT LDS RZ, [RZ]` before asynchronous copies.
        return self.guard in {"@!PT", "@!UPT"}


_JUMPS = {"BRA", "BRX", "JMP", "JMX"}
# They decide what runs next; a trap (BPT) ends the kernel.
_DECISIONS = {*_JUMPS, "BPT", "CALL", "EXIT", "KILL", "RET"}
# They begin with an operand that they read.
_NO_RESULT = {*_DECISIONS, "BAR", "BREAK", "BSYNC", "NANOSLEEP", "R2B", "WARPSYNC"}
# Only their first operand is a result, whatever follows it.
_ONE_RESULT = {"FCHK", "P2R", "R2P", "UP2UR", "UR2UP"}
_DOUBLES = {"DADD", "DFMA", "DMNMX", "DMUL", "DSETP"}
_SHIFTS = {"SHF", "USHF"}  # SHF.L.U64 names both halves of its 64 bits
_IMAGES = {"SULD", "SUST", "TEX", "TLD", "TLD4", "TXD"}
# Registers of an operand, by flag. The exact ones tell of the result, too; F64 in
# `F2F.F32.F64 R2, R4` does not.
_EXACT = {"64": 2, "128": 4, "256": 4, "WIDE": 2}
_REGISTERS = _EXACT | {"U64": 2, "S64": 2, "F64": 2}
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2}
# Memory of a thread or a block takes part as if it were one register each.
_LOADED = {"LDL": "local", "LDS": "shared", "LDSM": "shared", "ATOMS": "shared"}
_STORED = {"STL": "local", "STS": "shared", "LDGSTS": "shared", "ATOMS": "shared"}

_LABEL = re.compile(r"`\(.*?\)|\(\*.*?\*\)")  # may hold what looks like a register
_RESULT = re.compile(r"U?(?:R(?:\d+|Z)|P(?:\d|T|R))")
_NAME = re.compile(r"\b(U?)(?:R(\d+)|P(\d|R))\b(\.64)?")
_ADDRESS = re.compile(r"\[[^]]*\]")
_CONSTANT = re.compile(r"\bc\w*\[([^]]+)\]\[(?:U?RZ\+)?([^]]+)\]")


@dataclass(frozen=True)
class _Effect:
    """What an instruction reads and writes, as names of registers, and arguments as bits.

    After it the registers in `certain` hold nothing that they held before.
    """

    reads: frozenset[str] = frozenset()
    arguments: int = 0
    writes: frozenset[str] = frozenset()
    certain: frozenset[str] = frozenset()


def deciding(code: Sequence[Instruction], arguments: Sequence[range]) -> list[tuple[int, ...]]:
    """For every instruction the arguments by which a test decides whether it runs, ascending.

    `arguments` are the bytes of each in constant bank 0.
    """
    ahead = _with_calls(code)
    effects = [_effect(i, arguments) for i in code]
    held = _held(effects, ahead)
    tests = [
        _read(effect, here) if i.name in _DECISIONS else 0
        for i, effect, here in zip(code, effects, held, strict=True)
    ]
    before = _passed_on(tests, ahead)
    guards = [_any_of(here, _names(i.guard)) for i, here in zip(code, held, strict=True)]
    return [
        tuple(k for k in range(len(arguments)) if (earlier | guard) >> k & 1)
        for earlier, guard in zip(before, guards, strict=True)
    ]


def looping(code: Sequence[Instruction]) -> set[int]:
    """Places of the instructions that may run again and again, those of callees included.

    Every loop holds a branch backwards; what is reached from its target and reaches the branch is
    the loop. Blocks that ptxas moved behind the last EXIT jump backwards, too, but make no loop.
    """
    ahead = _steps(code)
    behind = _behind(ahead)
    found: set[int] = set()
    for source, targets in enumerate(ahead):
        for target in (t for t in targets if t <= source):
            found |= _reached([target], ahead) & _reached([source], behind)
    callees = [list(i.targets) if i.name == "CALL" else [] for i in code]
    within = [steps + callee for steps, callee in zip(ahead, callees, strict=True)]
    return found | _reached((t for place in found for t in callees[place]), within)


def _steps(code: Sequence[Instruction]) -> list[list[int]]:
    """For every place those that may follow; a call is a step to what stands behind it."""
    ahead: list[list[int]] = []
    for place, i in enumerate(code):
        jumps = list(i.targets) if i.name in _JUMPS else []
        ahead.append(jumps + [place + 1] * (i.falls_through() and place + 1 < len(code)))
    return ahead


@cache
def touched_registers(i: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the registers and predicates that an instruction reads, and of those it writes."""
    effect = _effect(i, ())
    return effect.reads, effect.writes


def _with_calls(code: Sequence[Instruction]) -> list[list[int]]:
    """As `_steps`, and from a call into the function, whose returns lead behind all its calls."""
    ahead = _steps(code)
    found = [list(steps) for steps in ahead]
    for place, i in enumerate(code):
        if i.name == "CALL" and i.targets:
            found[place] += i.targets
            for last in _reached(i.targets, ahead):
                if code[last].name == "RET" and place + 1 < len(code):
                    found[last].append(place + 1)
    return found


def _behind(ahead: Sequence[Sequence[int]]) -> list[list[int]]:
    """For every place those that it may follow."""
    behind: list[list[int]] = [[] for _ in ahead]
    for source, targets in enumerate(ahead):
        for target in targets:
            behind[target].append(source)
    return behind


def _reached(
    starts: Iterable[int], steps: Sequence[Sequence[int]], without: int = -1
) -> frozenset[int]:
    """The places to which steps lead that do not pass the place `without`."""
    seen = set(starts) - {without}
    waiting = list(seen)
    while waiting:
        for step in steps[waiting.pop()]:
            if step not in seen and step != without:
                seen.add(step)
                waiting.append(step)
    return frozenset(seen)


def _held(effects: Sequence[_Effect], ahead: Sequence[Sequence[int]]) -> list[dict[str, int]]:
    """The arguments, as bits, in each register before every instruction: the least fix-point."""
    held: list[dict[str, int]] = [{} for _ in effects]
    waiting = deque(range(len(effects)))
    queued = set(waiting)
    while waiting:
        place = waiting.popleft()
        queued.discard(place)
        effect, here = effects[place], held[place]
        found = _read(effect, here)
        after = {name: bits for name, bits in here.items() if name not in effect.certain}
        if found:
            after |= {name: after.get(name, 0) | found for name in effect.writes}
        for step in ahead[place]:
            there = held[step]
            news = {n: bits for n, bits in after.items() if bits & ~there.get(n, 0)}
            for name, bits in news.items():
                there[name] = there.get(name, 0) | bits
            if news and step not in queued:
                queued.add(step)
                waiting.append(step)
    return held


def _passed_on(tests: Sequence[int], ahead: Sequence[Sequence[int]]) -> list[int]:
    """For every place the bits of all `tests` from which steps lead to it."""
    before = [0] * len(tests)
    waiting = [place for place, bits in enumerate(tests) if bits]
    while waiting:
        place = waiting.pop()
        for step in ahead[place]:
            joined = before[step] | before[place] | tests[place]
            if joined != before[step]:
                before[step] = joined
                waiting.append(step)
    return before


def _read(effect: _Effect, held: Mapping[str, int]) -> int:
    return effect.arguments | _any_of(held, effect.reads)


def _any_of(held: Mapping[str, int], names: Iterable[str]) -> int:
    found = 0
    for name in names:
        found |= held.get(name, 0)
    return found


def _effect(i: Instruction, arguments: Sequence[range]) -> _Effect:
    if i.never_runs():
        return _Effect()
    operands = _LABEL.sub("", i.operands).split(", ")
    results = _results(i, operands)
    reads, bits = {_LOADED.get(i.name, ""), *_names(i.guard)}, 0
    for index, source in enumerate(operands[len(results) :]):
        span = _span_of_source(i, index)
        reads.update(_names(source, span, _span_of_address(i)))
        bits |= _arguments_in(source, _size_of_source(i, span), arguments)
    possible, sure = _spans_of_result(i)
    writes = {_STORED.get(i.name, "")}.union(*(_names(r, possible) for r in results))
    # The whole of the predicates is written under a mask.
    certain = [name for r in results if not r.endswith("PR") for name in _names(r, sure)]
    return _Effect(
        frozenset(reads - {""}),
        bits,
        frozenset(writes - {""}),
        frozenset() if i.guard else frozenset(certain),
    )


def _results(i: Instruction, operands: Sequence[str]) -> list[str]:
    """The leading operands that are written.

    They are a register and the predicates of its carries (``IADD3 R2, P0, PT, ...``), a predicate
    and a register (``LOP3 P0, R2, ...``) or two predicates (``ISETP P0, PT, ...``).
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
    """The registers that `text` names: `span` from each, `address_span` from each in brackets."""
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
    """How many registers the `index`-th source may take."""
    if i.name in _IMAGES or "MMA" in i.name:
        return 4
    if i.name in _SHIFTS:
        return 1
    if "WIDE" in i.flags:
        return 2 if index == 2 else 1  # 32 bits by 32 bits, plus 64 bits
    return _widest(i, _REGISTERS)


def _size_of_source(i: Instruction, span: int) -> int:
    """How many bytes a constant operand may take."""
    narrow = [_BYTES[flag] for flag in i.flags if flag in _BYTES]
    return narrow[0] if narrow and i.name in {"LDC", "LDCU", "ULDC"} else 4 * span


def _span_of_address(i: Instruction) -> int:
    if i.name in _IMAGES:
        return 4
    return 2 if "E" in i.flags else 1


def _spans_of_result(i: Instruction) -> tuple[int, int]:
    """How many registers a result may take, and how many it takes for certain."""
    if i.name in _SHIFTS:
        return 1, 1
    if "MMA" in i.name or i.name == "LDSM":
        return 4, 1
    sure = _widest(i, _EXACT)
    if i.name == "CS2R" and "32" not in i.flags:
        sure = 2
    return max(_widest(i, _REGISTERS), sure, 2 if i.name in _IMAGES else 1), sure


def _widest(i: Instruction, widths: Mapping[str, int]) -> int:
    return max([2 if i.name in _DOUBLES else 1, *(widths.get(flag, 1) for flag in i.flags)])


def _arguments_in(source: str, size: int, arguments: Sequence[range]) -> int:
    """The arguments, as bits, that a constant operand of `size` bytes reads."""
    found = 0
    for bank, offset in _CONSTANT.findall(source):
        if bank.startswith("0x") and int(bank, 16) != 0:
            continue
        if bank == "0x0" and re.fullmatch(r"0x[0-9a-f]+|U?RZ", offset):
            first = 0 if offset.endswith("RZ") else int(offset, 16)
            touched = [first < a.stop and a.start < first + size for a in arguments]
        else:
            touched = [True] * len(arguments)  # an index may reach any of them
        found |= sum(1 << k for k, hit in enumerate(touched) if hit)
    return found


# What an instruction does to memory: kind and width in bytes of its access, None for all others.
AccessOf = Callable[[Instruction], tuple[str, int] | None]


def code_path(code: Sequence[Instruction], access: AccessOf) -> CodePath:
    """The path through one kernel's instructions, in the order of the listing."""
    ahead = _steps(code)
    loops = _loops(ahead)
    path = _busiest(code, _forward(ahead, loops), access)
    counts = {
        head: sum(access(code[p]) is not None for p in path if p in loops[head]) for head in loops
    }
    # Of a loop and the one around it that holds no more accesses, the inner one is the turn.
    head = max(loops, key=lambda head: (counts[head], -len(loops[head])), default=None)
    turn = loops[head] if head is not None and counts[head] else frozenset()
    once = [p for p in path if p not in turn]
    return CodePath(_part(code, once, access), _part(code, [p for p in path if p in turn], access))


def _loops(ahead: Sequence[Sequence[int]]) -> dict[int, frozenset[int]]:
    """The places of each loop, by that of its first instruction.

    A step back to a place without which one cannot come to where the step begins closes a loop: the
    natural loop of compilers. Blocks that ptxas moved behind the last EXIT jump back without one.
    """
    behind = _behind(ahead)
    found: dict[int, frozenset[int]] = {}
    for source, targets in enumerate(ahead):
        # A step to itself is how a listing ends.
        for head in (t for t in targets if t < source):
            if source in _reached([0], ahead, head) or source not in _reached([head], ahead):
                continue
            body = _reached([source], behind, head) | {head}
            found[head] = found.get(head, frozenset()) | body
    return found


def _forward(
    ahead: Sequence[Sequence[int]], loops: Mapping[int, frozenset[int]]
) -> list[tuple[int, ...]]:
    """The steps without those that begin a loop anew, which lead to where that loop is left."""
    forward = [set(targets) for targets in ahead]
    # The inner loops first: where they are left may be where the outer one begins anew.
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
    """The places of the way from the first instruction to an end with the most accesses."""
    order, state = [], [0] * len(code)
    waiting = [(0, False)] if code else []
    steps: list[list[int]] = [[] for _ in code]
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
        steps[place] = [t for t in forward[place] if position[t] < position[place]]
        ways = [(best[t], t) for t in steps[place]]
        (accesses, length), target = max(ways, default=((0, 0), -1))
        following[place] = target
        best[place] = (accesses + (access(code[place]) is not None), length - 1)
    path, place = [], 0 if code else -1
    while place >= 0:
        path.append(place)
        place = following[place]
    return path


def _part(code: Sequence[Instruction], places: Sequence[int], access: AccessOf) -> PathPart:
    kinds: dict[str, list[int]] = {"load": [], "store": []}
    pending: set[str] = set()
    waits = 0
    for instruction in (code[p] for p in places):
        reads, writes = touched_registers(instruction)
        if pending & reads:
            waits, pending = waits + 1, set()
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
    )
