"""Writes energy_cells_h200.json, the cells whose energy is measured on an NVIDIA H200.

    snakemake --cores all --configfile config/full.yaml config/dots.yaml \
        --config run=h200 only=null dataset=reports/reference/nvidia-h200 \
        -- results/h200/summary/best.parquet
    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/energy_cells.py results/h200

Of each group in `GROUPS` the fastest launch of the record, the tied one that is least like it where
there is one, and the launches that are named. Sizes are of arrays of 1 GiB where the record says
that they are far outside of the cache; that of `copy2d_coalesced` in float is four times as large
as the recorded one. The list is made so that all of it takes six minutes at most, with what
compare_energy.py adds:

    python -m gpushmoo.studies.energy --cells experiments/gpu/energy_cells_h200.json \
        --rounds 3 --window 2 --warm 0.4 --settle 4 --out energy.parquet
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpushmoo.analysis.best import read_best
from gpushmoo.analysis.energy_cells import FASTEST, OTHER_TIED, chosen_cell, unlike
from gpushmoo.analysis.fastest import axes_of
from gpushmoo.core.chosen_cells import ChosenCell, to_plain
from gpushmoo.core.schema import is_axis
from gpushmoo.storage.dataset import matching, read_medians
from gpushmoo.storage.wholefile import write_json

Point = Mapping[str, int]


@dataclass(frozen=True)
class EnergyGroup:
    """Cells of the record that compete; `named` are launches beside the fastest.

    `size` is the side in elements, `measured_size` another one at which energy is measured.
    """

    kernel: str
    dtype: str
    variant: str
    size: int
    named: Sequence[Point] = ()
    measured_size: int | None = None


def shapes(*blocks: tuple[int, int]) -> list[Point]:
    return [{"block_x": x, "block_y": y} for x, y in blocks]


# With these compare_energy.py compares Kernel Tuner: eight of each type.
COPIES = ((64, 4), (32, 8), (16, 16), (32, 32), (8, 8), (64, 16))
GROUPS = (
    EnergyGroup(
        *("copy2d_coalesced", "float", "element", 8192),
        named=shapes(*COPIES, (48, 4), (4, 64)),
        measured_size=16384,
    ),
    EnergyGroup("copy2d_coalesced", "float4", "element", 8192, named=shapes(*COPIES)),
    EnergyGroup("global_load", "float4", "plain", 8192),
    EnergyGroup("global_load", "float4", "plain", 1024),
    EnergyGroup("global_store", "float4", "plain", 8192),
    EnergyGroup("global_store", "float4", "plain", 1024),
    EnergyGroup("global_copy", "float4", "plain", 8192),
    EnergyGroup("global_copy", "float4", "plain", 1024),
    EnergyGroup("tex2d_sum", "float", "block-point-clamp", 16384, named=shapes((32, 8))),
    EnergyGroup("block_eq_partition", "float", "exact", 8192, named=[{"num_partition": 132}]),
)


def cells_of(run: Path, group: EnergyGroup) -> list[ChosenCell]:
    """The cells of one group of the run in the folder `run`."""
    where = {"kernel": group.kernel, "dtype": group.dtype}
    key = {
        **where,
        "variant": group.variant,
        "height": group.size,
        "width": group.size,
        "cache_state": "warm",
    }
    dataset = read_medians(run / "dataset", where)
    cells = matching(dataset, key)
    best = read_best(run / "summary" / "best.parquet", [c for c in dataset if is_axis(c)])
    tied_keys = set(matching(best, key)["cell_key"])
    axes = axes_of(cells)
    tied = cells[cells["cell_key"].isin(tied_keys)].sort_values("median_s").to_dict("records")
    rows = [(tied[0], FASTEST)]
    if len(tied) > 1:
        rows.append((max(tied[1:], key=lambda row: unlike(row, tied[0], axes)), OTHER_TIED))
    for point in group.named:
        role = " × ".join(str(value) for value in point.values())
        rows.append((matching(cells, {**key, **point}).iloc[0].to_dict(), role))
    sides = (
        {}
        if group.measured_size is None
        else dict.fromkeys(("height", "width"), group.measured_size)
    )
    chosen = [chosen_cell({**row, **sides}, axes, role) for row, role in rows]
    # What is chosen twice keeps the first reason.
    return list({one.cell.key: one for one in reversed(chosen)}.values())[::-1]


def main(run: str) -> None:
    """Write the file beside this one."""
    chosen = [one for group in GROUPS for one in cells_of(Path(run), group)]
    write_json(Path(__file__).with_name("energy_cells_h200.json"), to_plain(chosen))
    for one in chosen:
        cell = one.cell
        print(cell.kernel, cell.dtype, cell.problem.label, dict(cell.params), one.role)


if __name__ == "__main__":
    main(sys.argv[1])
