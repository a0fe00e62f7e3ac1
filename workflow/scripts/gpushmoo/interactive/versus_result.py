"""What two versions, measured alternately, have shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..comparing.verdicts import PairedChange, block_changes, judged, paired_change
from ..core.display import one_line
from ..core.schema import Status
from ..devices.base import DeviceInfo
from ..measuring.job import MeasuredPairs

# Rows of the table that a result is printed as.
_MOST_ROWS = 30
# Columns that say of a pair which one it is, but its parameters.
_WHICH = ("dtype", "variant_a", "variant_b", "height", "width", "cache_state", "launch_kind")
# Those of what its samples say.
_NUMBERS = ("change", "change_low", "change_high", "p_other", "p_same", "p_beyond")
_NOTHING = {**dict.fromkeys(_NUMBERS, np.nan), "verdict": None, "beyond": False}


@dataclass(frozen=True)
class Side:
    """One of the two versions: its folder, its variants, and its compiler's own options."""

    folder: Path
    variants: tuple[str, ...]
    options: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join([str(self.folder), ",".join(self.variants), *self.options])


class Versus:
    """Two versions of a kernel that were measured alternately on one device.

    `cells` has a row for each pair of cells: what it is (`dtype`, `variant_a` and `variant_b`,
    `height`, `width`, `cache_state`, `launch_kind`, a column of whole numbers for each parameter),
    `status` and `message`, `launches` a sample, `a_s` and `b_s` (median seconds of a launch),
    `change` (the share by which B takes longer, with the bounds of its 95 % interval `change_low`
    and `change_high`), the p-values `p_other` (nothing changed), `p_same` (it changed by δ or more)
    and `p_beyond` (B is not slower by more than δ), `verdict` and `beyond` (both judged over all
    cells together), and the samples in seconds, an array of shape (blocks, 2) each. `groups` has a
    row for all measured `pairs` that differ in their parameters alone: the mean of their changes,
    which is known better than each of them.
    """

    def __init__(
        self,
        sides: tuple[Side, Side],
        measured: Mapping[str, MeasuredPairs],
        blocks: int,
        delta: float,
        log: str,
    ) -> None:
        """`measured` is by element type; `delta` is a share."""
        self.sides, self.blocks, self.delta, self.log = sides, blocks, delta, log
        self.device: DeviceInfo = next(iter(measured.values())).opened.info
        self.alone = tuple(sum(m.opened.alone[who] for m in measured.values()) for who in (0, 1))
        self.same_code = sides[0].variants == sides[1].variants and all(
            map(_same_code, measured.values())
        )
        rows = [row for dtype, m in measured.items() for row in _rows(dtype, m)]
        self.cells = _judge(rows, delta)
        self.groups = _grouped(self.cells, delta)

    @property
    def verdicts(self) -> dict[str, int]:
        """How many pairs have which verdict; those that were not measured have none."""
        return dict(Counter(self.cells["verdict"].dropna()))

    @property
    def slower(self) -> bool:
        """Whether of any pair, or of a group together, B is shown to be slower by more than δ."""
        return bool(self.cells["beyond"].any() or self.groups["beyond"].any())

    def __repr__(self) -> str:
        a, b = self.sides
        parts = [f"A: {a}", f"B: {b}", f"{self.device.name}, {self.blocks} blocks of A B B A"]
        if self.same_code:
            parts.append("Both were compiled into the same machine code.")
        if any(self.alone):
            parts.append("Cells without one to stand beside: {} of A, {} of B.".format(*self.alone))
        return "\n".join([*parts, self._summary(), *self._group_lines(), "", self._table()])

    def _summary(self) -> str:
        counted = [f"{n} {verdict}" for verdict, n in sorted(self.verdicts.items())]
        failed = Counter(s for s in self.cells["status"] if s != Status.OK)
        counted += [f"{n} {status}" for status, n in sorted(failed.items())]
        beyond = int(self.cells["beyond"].sum())
        more = f"; of {beyond} pairs B is slower by more than that" if beyond else ""
        return f"{len(self.cells)} pairs: {', '.join(counted)} (at {self.delta:.3g}){more}."

    def _group_lines(self) -> Iterator[str]:
        for group in self.groups.to_dict("records"):
            if group["pairs"] > 1:
                which = ", ".join(str(group[name]) for name in _WHICH)
                yield f"All {group['pairs']} of {which}: {_interval(group)}, {group['verdict']}."

    def _table(self) -> str:
        """The pairs that changed most first, of which there may be many more; faults last."""
        shown = self.cells.copy()
        order = shown["change"].abs().sort_values(ascending=False, na_position="last").index
        shown = shown.loc[order].head(_MOST_ROWS)
        constant = [c for c in _WHICH if self.cells[c].nunique() == 1]
        axes = list(shown.columns)[len(_WHICH) : list(shown.columns).index("status")]
        table = shown[[c for c in _WHICH if c not in constant] + axes].copy()
        table["A (µs)"], table["B (µs)"] = (
            _texts(shown[c] * 1e6, "{:.4g}") for c in ("a_s", "b_s")
        )
        table["change (95 % interval)"] = [_interval(row) for row in shown.to_dict("records")]
        told = zip(shown["verdict"], shown["status"], shown["message"], strict=True)
        table["verdict"] = [
            one_line(f"{status}: {said}", 80) if pd.isna(v) else v for v, status, said in told
        ]
        common = ", ".join(str(self.cells[c].iloc[0]) for c in constant) if len(shown) else ""
        rest = len(self.cells) - len(shown)
        more = f"\n{rest} more pairs, which changed less, are in `cells`." if rest else ""
        return f"{common}\n{table.to_string(index=False)}{more}"


def _texts(values: pd.Series, form: str) -> list[str]:
    return ["" if pd.isna(value) else form.format(value) for value in values]


def _interval(row: Mapping[str, Any]) -> str:
    """``+1.02% (+0.94% to +1.11%)``; empty where there is none."""
    if pd.isna(row["change"]):
        return ""
    return f"{row['change']:+.2%} ({row['change_low']:+.2%} to {row['change_high']:+.2%})"


def _same_code(measured: MeasuredPairs) -> bool:
    """Whether the runtime tells machine code, and that of A's versions is that of B's."""
    a, b = (sorted(codes.values()) for codes in measured.opened.codes)
    return a == b and all(a) and bool(a)


def _rows(dtype: str, measured: MeasuredPairs) -> Iterator[dict[str, Any]]:
    """A row of plain values for each pair, not judged yet."""
    for run in measured.runs:
        a, b = (one.cell for one in run.runs)
        a_s, b_s = (np.array(s, dtype=float).reshape(-1, 2) for s in (run.a_s, run.b_s))
        which = dtype, a.variant, b.variant, a.problem.height, a.problem.width, *a.condition
        yield {
            **dict(zip(_WHICH, which, strict=True)),
            # Of parameters that both have the values are the same.
            **dict(sorted({*a.params, *b.params})),
            "status": str(run.status),
            "message": run.message,
            "launches": run.launches,
            "a_s": np.median(a_s) if a_s.size else None,
            "b_s": np.median(b_s) if b_s.size else None,
            "a_samples_s": a_s,
            "b_samples_s": b_s,
        }


def _judge(rows: Sequence[dict[str, Any]], delta: float) -> pd.DataFrame:
    """The rows as a frame, with what the samples of each say."""
    measured = [i for i, row in enumerate(rows) if row["status"] == Status.OK]
    changes = [
        paired_change(block_changes(rows[i]["a_samples_s"], rows[i]["b_samples_s"]), delta)
        for i in measured
    ]
    said = dict(zip(measured, _said(changes), strict=True))
    frame = pd.DataFrame([{**row, **said.get(i, _NOTHING)} for i, row in enumerate(rows)])
    samples = ["a_samples_s", "b_samples_s"]
    return frame[[c for c in frame.columns if c not in samples] + samples]


def _grouped(cells: pd.DataFrame, delta: float) -> pd.DataFrame:
    """A row for each group of pairs; a block of it is the mean of that block of all of them."""
    measured = cells[cells["status"] == Status.OK]
    rows, changes = [], []
    for which, group in measured.groupby(list(_WHICH), sort=False):
        pairs = zip(group["a_samples_s"], group["b_samples_s"], strict=True)
        blocks = np.mean([block_changes(a_s, b_s) for a_s, b_s in pairs], axis=0)
        rows.append({**dict(zip(_WHICH, which, strict=True)), "pairs": len(group)})
        changes.append(paired_change(blocks, delta))
    columns = [*_WHICH, "pairs", *_NUMBERS, "verdict", "beyond"]
    said = zip(rows, _said(changes), strict=True)
    return pd.DataFrame([row | numbers for row, numbers in said], columns=columns)


def _said(changes: Sequence[PairedChange]) -> Iterator[dict[str, Any]]:
    """What the samples of each pair say, judged together."""
    for change, (verdict, beyond) in zip(changes, judged(changes), strict=True):
        shares = (np.expm1(v) for v in (change.estimate, change.low, change.high))
        numbers = *shares, change.p_other, change.p_same, change.p_beyond
        named = dict(zip(_NUMBERS, numbers, strict=True))
        yield {**named, "verdict": str(verdict), "beyond": beyond}
