"""Some of many builds or cells, in which every two values meet; data and faults of dot products."""

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import Workload
from gpushmoo.workloads.loader import KernelFolder, load_kernel

Choice = Callable[[list[Cell]], list[Cell]]
Values = tuple[tuple[str, int], ...]


def pairs_of(cell: Cell) -> set[Values]:
    """Every two launch parameters of a cell with their values, each by itself, and none at all."""
    params = sorted(cell.params)
    return {some for count in range(3) for some in itertools.combinations(params, count)}


def covering(cells: list[Cell]) -> list[Cell]:
    """Of `cells`, which differ in launch parameters only, some that hold every pair of all.

    Most faults need a certain value of one parameter or of two. Taken greedily: always the first
    cell with the most pairs that are missing, so that the choice is the same in every run.
    """
    missing = set().union(*map(pairs_of, cells))
    chosen = []
    while missing:
        chosen.append(max(cells, key=lambda cell: len(pairs_of(cell) & missing)))
        missing -= pairs_of(chosen[-1])
    return chosen


# A test with this parameter takes few cells; in a fuzz, all of them, too.
CHOSEN = pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(covering, id="every pair of values"),
        pytest.param(list, id="all", marks=pytest.mark.fuzz),
    ],
)


def crossed(workload: Workload, variants: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    """Type, variant and marks of every build; most of them are for a fuzz.

    The others are all variants of the first type and the first variant of all types.
    """
    for dtype, variant in itertools.product(workload.dtypes, variants):
        few = dtype == workload.dtypes[0] or variant == variants[0]
        yield dtype, variant, () if few else pytest.mark.fuzz


def integers(n: int, dtype: str) -> dict[str, npt.NDArray[Any]]:
    """Data whose dot product is exact in any order of summation."""
    i = np.arange(n)
    scalar = DTYPES[dtype].scalar
    return {"x": (1 + i % 7).astype(scalar), "y": (1 + i % 5).astype(scalar)}


def edited(kernel: KernelFolder, tmp_path: Path, edits: Sequence[tuple[str, str]]) -> KernelFolder:
    """The kernel with OpenCL's edit, the first, and CUDA's, the last."""
    folder = tmp_path / kernel.name
    shutil.copytree(kernel.path, folder)
    for name, (old, new) in (("kernel.cl", edits[0]), ("kernel.cu", edits[-1])):
        text = (folder / name).read_text()
        assert text.count(old) == 1
        (folder / name).write_text(text.replace(old, new))
    return load_kernel(folder)
