"""What one thread runs of a kernel: how many instructions and accesses, how many waits for loads.

A model of a launch's time needs this, and neither the source nor the list of accesses tells it: the
compiler unrolls loops, keeps a second copy of a loop's body for the rest, and decides how many
loads are on their way before the first of their results is needed.

Of all ways through the code without a step back, the path is that with the most accesses to
memory, of these the shortest: what a thread in the middle of the data runs. Of the loops on it the
one with the most accesses is the `turn`, which runs again and again; all else on the path is
`once`. A loop around that loop counts as if it ran once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from ...core.code_path import CodePath, PathPart
from .flow import Instruction, steps_of, touched_registers

# What an instruction does to memory: kind and width in bytes of its access, None for all others.
AccessOf = Callable[[Instruction], tuple[str, int] | None]


def code_path(code: Sequence[Instruction], access: AccessOf) -> CodePath:
    """The path through one kernel's instructions, in the order of the listing."""
    ahead = steps_of(code)
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
    behind: list[list[int]] = [[] for _ in ahead]
    for source, targets in enumerate(ahead):
        for target in targets:
            behind[target].append(source)
    found: dict[int, frozenset[int]] = {}
    for source, targets in enumerate(ahead):
        # A step to itself is how a listing ends.
        for head in (t for t in targets if t < source):
            if source in _reached(0, ahead, head) or source not in _reached(head, ahead):
                continue
            body = _reached(source, behind, head) | {head}
            found[head] = found.get(head, frozenset()) | body
    return found


def _reached(start: int, steps: Sequence[Sequence[int]], without: int = -1) -> frozenset[int]:
    """The places to which steps lead that do not pass the place `without`."""
    seen, waiting = {start} - {without}, [start]
    while waiting:
        place = waiting.pop()
        if place == without:
            continue
        for step in steps[place]:
            if step not in seen and step != without:
                seen.add(step)
                waiting.append(step)
    return frozenset(seen)


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
        reads, writes = _registers(instruction)
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


@cache
def _registers(instruction: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    return touched_registers(instruction)
