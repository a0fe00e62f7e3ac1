"""Launches of the project's kernels as the model of a device sees them; none was measured."""

import itertools
from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np
import pandas as pd
from conftest import ROOT
from gpushmoo.core.code_path import CodePath, PathPart
from gpushmoo.core.schema import GROUP
from gpushmoo.core.space import Cell, Problem
from gpushmoo.model.form import Model
from gpushmoo.model.launches import Describer, DeviceFacts, Launches
from gpushmoo.workloads.contract import Workload
from gpushmoo.workloads.loader import load_kernel

# An NVIDIA H200's.
FACTS = DeviceFacts(multiprocessors=132, cache_bytes=60 * 2**20, clock_hz=1.98e9)
RESIDENT_WARPS, MAX_RESIDENT = 64, 32
SQUARES = tuple(Problem(n, n) for n in (512, 1024, 2048, 4096, 8192))
SHAPES = {"block_x": (4, 8, 16, 32, 64), "block_y": (4, 8, 16)}
PIECES = {"block_x": (128, 512), "unroll": (1, 8), "passes": (1, 4, 16)}
AXES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "copy2d_coalesced": SHAPES,
    "block_eq_partition": {"num_partition": (1, 8, 132, 264, 400, 528, 700, 1500, 5000)},
    "copy2d_document": {"block_rows": (1, 2, 4, 8, 16, 32)},
    "surf2d_memset": SHAPES,
    "tex2d_sum": SHAPES,
    "global_copy": PIECES,
    "global_load": PIECES,
    "global_store": PIECES,
}


def part(instructions: int, loads: int = 0, stores: int = 0, waits: int = 0) -> PathPart:
    return PathPart(instructions, loads, stores, 4 * bool(loads), 4 * bool(stores), waits)


def code_paths() -> dict[tuple[str, str, str, str], CodePath]:
    """About what the compiler makes of each kernel."""
    found = {
        ("copy2d_coalesced", "element", "copy_element"): CodePath(part(18, 1, 1, 1), part(0)),
        ("block_eq_partition", "exact", "copy_exact"): CodePath(part(25), part(26, 1, 1, 1)),
        ("surf2d_memset", "block-one", "set_texels"): CodePath(part(20, stores=1), part(0)),
        ("tex2d_sum", "block-point-clamp", "sum_texels"): CodePath(part(25, 1, 0, 1), part(0)),
    }
    for n in PIECES["unroll"]:
        turns = {"load": (n, 0, 1), "store": (0, n, 0), "copy": (n, n, 1)}
        for what, turn in turns.items():
            path = CodePath(part(20), part(8 + 6 * n, *turn))
            found[f"global_{what}", "plain", f"{what}_{n}"] = path
    for rows in AXES["copy2d_document"]["block_rows"]:
        n = 32 // rows
        for variant, waits in (("published", n), ("distinct", -(-n // 8))):
            path = CodePath(part(17 + 5 * n, n, n, waits), part(0))
            found["copy2d_document", variant, f"copy_rows_{rows}"] = path
    return {(kernel, "float", *rest): path for (kernel, *rest), path in found.items()}


@cache
def workloads() -> dict[str, Workload]:
    return {name: load_kernel(ROOT / "kernels" / name).workload for name in AXES}


@cache
def describer() -> Describer:
    return Describer(workloads(), code_paths(), FACTS)


def cells() -> list[Cell]:
    """Every kernel's cells that a block has threads for."""
    variants = sorted({(kernel, variant) for kernel, _, variant, _ in code_paths()})
    return [
        Cell(kernel, "float", variant, problem, tuple(sorted(zip(axes, at, strict=True))), state)
        for kernel, variant in variants
        for axes in [AXES[kernel]]
        for problem in SQUARES
        for state in workloads()[kernel].cache_states
        for at in itertools.product(*axes.values())
    ]


def rows_of(cells: Iterable[Cell]) -> pd.DataFrame:
    """A row for each of `cells`: the group, the launch parameters and what the model takes."""
    rows = []
    for cell in cells:
        warps = -(-workloads()[cell.kernel].launch(cell).threads // 32)
        asked = describer().launch(cell, min(MAX_RESIDENT, RESIDENT_WARPS // warps), 20)
        assert not isinstance(asked, str), asked
        problem = {"height": cell.problem.height, "width": cell.problem.width}
        names = {n: getattr(cell, n) for n in (*GROUP[:3], "cache_state", "timing_mode")}
        rows.append(
            {**names, **problem, "device_name": "NVIDIA H200", "cell_key": cell.key}
            | {**dict(cell.params), **asked}
        )
    return pd.DataFrame(rows)


@cache
def _table() -> pd.DataFrame:
    return rows_of(cells())


def described() -> pd.DataFrame:
    """The rows of all `cells`."""
    return _table().copy()


def points(table: pd.DataFrame) -> pd.DataFrame:
    """The launch parameters of `table`, a column each."""
    return table[sorted({name for axes in AXES.values() for name in axes})]


def measured(
    table: pd.DataFrame, values: Mapping[str, float], noise: float, seed: int
) -> pd.DataFrame:
    """`table` as a device of these parameters would be measured; noise is relative."""
    off = noise * np.random.default_rng(seed).standard_normal(len(table))
    return table.assign(measured_s=Model(values).seconds(Launches.of(table)) * np.exp(off))
