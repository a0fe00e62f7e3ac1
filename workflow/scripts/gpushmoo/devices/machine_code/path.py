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

from collections.abc import Callable, Collection, Sequence
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
    counts = {body: sum(access(code[p]) is not None for p in path if p in body) for body in loops}
    # Of a loop and the one around it that holds no more accesses, the inner one is the turn.
    turn = max(loops, key=lambda body: (counts[body], -len(body)), default=frozenset())
    if not counts.get(turn):
        turn = frozenset()
    once = [p for p in path if p not in turn]
    return CodePath(_part(code, once, access), _part(code, [p for p in path if p in turn], access))


def _loops(ahead: Sequence[Sequence[int]]) -> list[frozenset[int]]:
    """The places of each loop: what lies between a branch backwards and its target."""
    behind: list[list[int]] = [[] for _ in ahead]
    for source, targets in enumerate(ahead):
        for target in targets:
            behind[target].append(source)
    found = []
    for source, targets in enumerate(ahead):
        for target in (t for t in targets if t < source):
            body = _reach(target, ahead) & _reach(source, behind)
            # A block that was moved behind the last EXIT jumps back without making a loop.
            if {source, target} <= body:
                found.append(frozenset(body))
    return sorted(set(found), key=sorted)


def _reach(start: int, steps: Sequence[Sequence[int]]) -> set[int]:
    seen, waiting = {start}, [start]
    while waiting:
        for place in steps[waiting.pop()]:
            if place not in seen:
                seen.add(place)
                waiting.append(place)
    return seen


def _forward(
    ahead: Sequence[Sequence[int]], loops: Sequence[Collection[int]]
) -> list[tuple[int, ...]]:
    """The steps without those that begin a loop anew, which lead to where that loop is left."""
    forward = [set(targets) for targets in ahead]
    for body in sorted(loops, key=len):
        left = {t for p in body for t in ahead[p] if t not in body}
        for place in body:
            again = {t for t in forward[place] if t in body and t <= place}
            if again:
                forward[place] = (forward[place] - again) | left
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
