"""Figure 1: the transactions of a half-warp that reads float, double and float3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from gpushmoo.figures.style import PAGE_WIDTH, apply_style, save
from matplotlib.axes import Axes

from ..coalescing import Transaction, compiled_loads, whole_accesses
from ..simulation.machine import Machine, half_warp_bytes
from .drawing import NEUTRAL, NOTE_SIZE, Drawing, cell

FLOAT, DOUBLE, FLOAT3 = 4, 8, 12
TRANSACTION_FILL = "#FFFFFF"


@dataclass(frozen=True)
class _Access:
    """A band of the figure: what each thread reads with one instruction, and what moves."""

    label: str
    word_bytes: int
    addresses: Sequence[int]
    transactions: Sequence[Transaction]


def coalesced_pattern(machine: Machine, svg: Path) -> None:
    """Words of the threads above the transactions that serve them, for each instruction."""
    apply_style()
    accesses = _accesses(machine)
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 3.4))
    for band, access in enumerate(accesses):
        _band(ax, band, access)
    longest = max(t.address + t.n_bytes for a in accesses for t in a.transactions)
    ax.set_xlim(-1, longest + 1)
    ax.set_ylim(len(accesses) - 0.1, -0.15)
    ax.set_xticks(range(0, longest + 1, 32))
    ax.set_yticks([band + 0.4 for band in range(len(accesses))], [a.label for a in accesses])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("address (bytes from a segment's begin)")
    save(figure, svg, "Figure 1: coalescing of a half-warp's reads", **_note(machine))


def _accesses(machine: Machine) -> list[_Access]:
    threads = range(machine.half_warp)
    accesses = []
    for name, itemsize in (("float", FLOAT), ("double", DOUBLE), ("float3,\nas counted", FLOAT3)):
        moved = whole_accesses(itemsize, threads=machine.half_warp)
        accesses.append(_Access(name, itemsize, [t * itemsize for t in threads], moved))
    for number, load in enumerate(compiled_loads(FLOAT3, threads=machine.half_warp), 1):
        label = f"float3 as\ncompiled, {number}"
        accesses.append(_Access(label, load.word_bytes, load.addresses, load.transactions))
    return accesses


def _band(ax: Axes, band: int, access: _Access) -> None:
    for thread, address in enumerate(access.addresses):
        cell(ax, (address, band), (access.word_bytes, 0.36), NEUTRAL, str(thread), points=5.5)
    for t in access.transactions:
        corner, size = (t.address, band + 0.41), (t.n_bytes, 0.36)
        cell(ax, corner, size, TRANSACTION_FILL, f"{t.n_bytes} bytes", points=NOTE_SIZE)


def _note(machine: Machine) -> dict[str, Any]:
    """Caption and facts."""
    single, double, counted = (
        whole_accesses(size, threads=machine.half_warp) for size in (FLOAT, DOUBLE, FLOAT3)
    )
    loads = compiled_loads(FLOAT3, threads=machine.half_warp)
    issued = [t for load in loads for t in load.transactions]
    moved, useful = sum(t.n_bytes for t in issued), half_warp_bytes(machine, FLOAT3)
    n = machine.half_warp
    caption = (
        f"Grey: the words that a half-warp reads with one instruction, numbered by thread; white: "
        f"the transactions that serve them, by the rule of compute capability 1.2 and 1.3 "
        f"(the document's 2.3 is the version of the guide). "
        f"{n} float take {_sizes(single)} and {n} double {_sizes(double)}. "
        f"{n} float3 take {_sizes(counted)} if one instruction could read a float3 (it is float3, "
        f"not float, that needs two: a slip of the document). But float3 is aligned to 4 bytes "
        f"only, so a compiler emits {len(loads)} loads at a stride of {FLOAT3} bytes, and each "
        f"touches the same {useful} bytes: {len(issued)} transactions move {moved} bytes, "
        f"{moved / useful:.3g} times the useful {useful}. This alone, without partition camping, "
        f"can make float3 {moved / useful:.3g} times slower than float, byte for byte."
    )
    return {
        "caption": caption,
        "float3_transactions": len(issued),
        "float3_bytes_moved": moved,
        "float3_bytes_useful": useful,
    }


def _sizes(issued: Sequence[Transaction]) -> str:
    """'2 transactions (128 + 64 bytes)'."""
    plural = "s" if len(issued) > 1 else ""
    return f"{len(issued)} transaction{plural} ({' + '.join(str(t.n_bytes) for t in issued)} bytes)"


DRAWINGS: tuple[Drawing, ...] = (Drawing(1, "coalesced_pattern.jpg", coalesced_pattern),)
