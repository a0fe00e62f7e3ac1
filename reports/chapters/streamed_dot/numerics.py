"""How far every way of computing a dot product is from the exact one, and what theory allows.

Σ x_i·y_i has the condition number 2·Σ |x_i·y_i| / |Σ x_i·y_i|: by so much, at most, the sum changes
more, relatively, than the factors do (Ogita, Rump and Oishi, see `summation`). It is 2, the least
there is, where no product is negative: with uniform data from 0 to 1, and for any sum of squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from dot_products import summation
from dot_products.summation import Reference
from dot_products.workloads import LANES, DotProduct
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import DeviceError, DeviceLostError
from gpushmoo.core.schema import Bool, Float64, Int64, Meaning, String, Table
from gpushmoo.core.space import Cell, Problem, Version
from gpushmoo.devices.base import Device
from gpushmoo.measuring.cell_memory import FedSpace, ReducedSpace
from gpushmoo.measuring.programs import Builds, programs_for
from gpushmoo.workloads.contract import ceil_div
from gpushmoo.workloads.host_fed import HostFedWorkload
from gpushmoo.workloads.loader import KernelFolder

Arrays = Mapping[str, npt.NDArray[Any]]
Row = dict[str, Any]

# A mode that gives no number has a message instead; one whose number rounding does not explain has
# both. `exact` is the double nearest to the exact sum, `bound` what the mode's own order of
# summation explains, relative to it; relative to 0 all but 0 is inf, and so is the error of NaN.
# `condition` is NaN where all products are 0.


class Errors(Table):
    """One sum, computed in one way."""

    kernel: String
    variant: String
    mode: Annotated[String, Meaning("name of a way of computing")]
    dtype: String
    params: Annotated[String, Meaning("launch parameters of the way, as a text")]
    n: Annotated[Int64, Meaning("elements of one array")]
    condition: Annotated[
        Float64, Meaning("condition number of the sum; NaN where all products are zero")
    ]
    value: Annotated[Float64 | None, Meaning("what the way gave; null where it gave none")]
    exact: Annotated[Float64, Meaning("the double that is nearest to the exact sum")]
    relative_error: Annotated[
        Float64 | None, Meaning("distance of the value from the exact sum, over the exact sum")
    ]
    bound: Annotated[
        Float64 | None, Meaning("how far rounding explains it to be off, over the exact sum")
    ]
    depth: Annotated[Int64 | None, Meaning("roundings on the longest way through the sum")]
    agrees: Annotated[Bool | None, Meaning("whether the error is within the bound")]
    message: Annotated[
        String | None, Meaning("why there is no value, or none that rounding explains")
    ]
    backend: String
    device_name: String


ERRORS_SCHEMA = Errors.schema()
UNIFORM = 2.0  # the condition number of sums without a negative product
TREE_THREADS = 2**15  # that a tree joins in `tree_depth`: 128 blocks of 256


@dataclass(frozen=True)
class Mode:
    """A way of computing dot products, under the name `label`: a cell without its problem."""

    label: str
    folder: KernelFolder
    variant: str
    params: tuple[tuple[str, int], ...] = ()

    @property
    def workload(self) -> DotProduct:
        """The workload of the kernel's folder, which must be a dot product."""
        assert isinstance(self.folder.workload, DotProduct)
        return self.folder.workload


@dataclass(frozen=True)
class Study:
    """Data on which modes are compared.

    Uniform vectors of each of `sizes`, and ill-conditioned ones of `condition_size` elements with
    about each of `conditions` (at least 2, see `summation.ill_conditioned`).
    """

    sizes: Sequence[int]
    conditions: Sequence[float]
    condition_size: int
    seed: int
    dtypes: Sequence[str] = ("float", "double")


# Every stream has work, however few the elements are.
_STREAMS = {"streams": 4, "min_per_stream": 1, "blocks_per_stream": 32, "threads": 256, "chunk": 0}
_MODES: tuple[tuple[str, str, str, dict[str, int]], ...] = (
    ("streams", "dot_streamed", "pinned-pooled", {**_STREAMS, "host_percent": 0}),
    ("streams and host", "dot_streamed", "pinned-pooled", {**_STREAMS, "host_percent": 50}),
    ("squares, streams", "dot_square", "pinned-pooled", {**_STREAMS, "host_percent": 0}),
    ("resident", "dot_resident", "packs", {"threads": 256, "grid": 128, "unroll": 4}),
    ("cuBLAS", "dot_cublas", "library", {}),
    ("BLAS, all cores", "dot_host", "blas-all", {}),
    ("BLAS, one core", "dot_host", "blas-one", {}),
    ("blocks, all cores", "dot_host", "blocks-all", {}),
    ("one loop", "dot_host", "naive", {}),
)


def modes_of(folders: Mapping[str, KernelFolder]) -> tuple[Mode, ...]:
    """Every mode whose kernel is among `folders` (by name), in the order of the figure."""
    return tuple(
        Mode(label, folders[kernel], variant, tuple(sorted(params.items())))
        for label, kernel, variant, params in _MODES
        if kernel in folders
    )


def run_study(device: Device, modes: Sequence[Mode], study: Study) -> pa.Table:
    """Every mode once on all data of `study`: rows of ERRORS_SCHEMA.

    What a device refuses becomes the row of its mode. Sums of squares are never ill-conditioned.

    Raises:
        DeviceLostError: Nothing more can be computed in this process.
        ValueError: No vectors of the study's length have one of its condition numbers.
    """
    rows: list[Row] = []
    for dtype in study.dtypes:
        builds = build_modes(device, modes, dtype)
        scalar = DTYPES[dtype].scalar
        for n in study.sizes:
            # What a sweep with this seed computes with.
            rng = np.random.default_rng([study.seed, 1, n])
            arrays = {name: rng.random(n, dtype=scalar) for name in ("x", "y")}
            rows += compare(device, modes, builds, dtype, arrays)
        pairs = [mode for mode in modes if len(mode.workload.operands) == 2]
        for i, condition in enumerate(study.conditions):
            rng = np.random.default_rng([study.seed, study.condition_size, i])
            x, y = summation.ill_conditioned(study.condition_size, scalar, rng, float(condition))
            rows += compare(device, pairs, builds, dtype, {"x": x, "y": y})
    return pa.Table.from_pylist(rows, schema=ERRORS_SCHEMA)


def build_modes(device: Device, modes: Sequence[Mode], dtype: str) -> dict[KernelFolder, Builds]:
    """Programs of all kernels of `modes`; what does not compile is among the failures."""
    return {
        folder: programs_for(
            device, folder, dtype, [Version(v) for v in sorted({m.variant for m in group})]
        )
        for folder, group in _by_folder(modes).items()
    }


def _by_folder(modes: Sequence[Mode]) -> dict[KernelFolder, list[Mode]]:
    return {mode.folder: [m for m in modes if m.folder == mode.folder] for mode in modes}


def compare(
    device: Device,
    modes: Sequence[Mode],
    builds: Mapping[KernelFolder, Builds],
    dtype: str,
    arrays: Arrays,
) -> list[Row]:
    """A row (see ERRORS_SCHEMA) of each mode on `arrays`, flat ``x`` and ``y`` of one length.

    Sums of squares take ``x`` alone. `builds` is what `build_modes` gives. Raises DeviceLostError.
    """
    # Once for each product, not for each kernel: it takes longer than most modes.
    references: dict[tuple[str, ...], Reference] = {}
    rows: list[Row] = []
    for folder, group in _by_folder(modes).items():
        workload = group[0].workload
        if workload.operands not in references:
            references[workload.operands] = summation.reference_dot(*workload.factors(arrays))
        data = _Data(dtype, arrays, references[workload.operands])
        outcomes = _outcomes(device, group, builds[folder], data)
        rows += [_row(device, m, data) | o for m, o in zip(group, outcomes, strict=True)]
    return rows


@dataclass(frozen=True)
class _Data:
    dtype: str
    arrays: Arrays
    reference: Reference


def _row(device: Device, mode: Mode, data: _Data) -> Row:
    """Return a row of the table, complete except for the outcome."""
    return {
        "kernel": mode.folder.name,
        "variant": mode.variant,
        "mode": mode.label,
        "dtype": data.dtype,
        "params": ", ".join(f"{name} {value}" for name, value in mode.params),
        "n": data.reference.terms,
        "condition": condition_of(data.reference),
        "exact": data.reference.value,
        "backend": device.info.backend,
        "device_name": device.info.name,
    }


def condition_of(reference: Reference) -> float:
    """2·Σ |x_i·y_i| / |Σ x_i·y_i|; inf where only the second is 0, NaN where both are."""
    magnitude, value = reference.magnitude, reference.value
    return 2 * _relative(magnitude, value) if magnitude else math.nan


def _relative(absolute: float, exact: float) -> float:
    if absolute == 0:
        return 0.0
    return math.inf if math.isnan(absolute) or exact == 0 else absolute / abs(exact)


def _outcomes(device: Device, group: Sequence[Mode], builds: Builds, data: _Data) -> Iterator[Row]:
    """What the modes of one kernel give, in their order: they share what holds the data."""
    try:
        space = _opened(device, group[0].workload, data)
    except DeviceLostError:
        raise
    except DeviceError as err:
        yield from ({"message": str(err)} for _ in group)
        return
    for mode in group:
        if mode.variant in builds.failures:
            yield {"message": str(builds.failures[mode.variant])}
            continue
        try:
            yield _outcome(space, mode, builds, data)
        except DeviceLostError:
            raise
        except DeviceError as err:
            yield {"message": str(err)}


def _opened(device: Device, workload: DotProduct, data: _Data) -> FedSpace | ReducedSpace:
    """Open memory that holds these vectors; other inputs are the workload's."""
    empty_inputs = workload.inputs(Problem(1, 0), data.dtype, np.random.default_rng(0))
    inputs = {**empty_inputs, **{name: data.arrays[name] for name in workload.operands}}
    if isinstance(workload, HostFedWorkload):
        return FedSpace(device, workload, inputs, data.reference)
    problem = Problem(1, data.arrays["x"].size)
    return ReducedSpace(device, workload, problem, data.dtype, lambda: inputs, data.reference)


def _outcome(space: FedSpace | ReducedSpace, mode: Mode, builds: Builds, data: _Data) -> Row:
    """One run on poisoned memory, as a measured cell is verified."""
    problem = Problem(1, data.reference.terms)
    program = builds.programs[mode.variant]
    cell = Cell(mode.folder.name, data.dtype, mode.variant, problem, mode.params)
    proof = space.bind_proof(program, cell) or space.bind(program, cell)
    space.poison()
    proof.run()
    value = space.value(proof)
    verdict = space.verdict(cell, proof)
    exact = data.reference.value
    depth = mode.workload.depth(cell)
    bound = summation.tolerance(data.reference, depth, DTYPES[data.dtype].scalar)
    return {
        "value": value,
        "relative_error": _relative(abs(value - exact), exact),
        "bound": _relative(bound.absolute, exact),
        "depth": depth,
        "agrees": verdict.wrong_words == 0,
        "message": verdict.message,
    }


def tree_depth(n: int) -> int:
    """Roundings where a GPU's threads share `n` products and a tree joins all of their sums.

    As many threads as have work, at most TREE_THREADS, each with LANES accumulators.
    """
    threads = min(TREE_THREADS, max(1, ceil_div(n, LANES)))
    return min(n, summation.blocked_depth(ceil_div(n, threads), threads, LANES, 1))


# Roundings on a product's way into a sum of n; pairwise is with a tree over the single products.
ORDERS: Mapping[str, Callable[[int], int]] = {
    "sequential": summation.sequential_depth,
    "tree": tree_depth,
    "pairwise": summation.pairwise_depth,
}


def order_bound(order: str, n: int, dtype: str, condition: float) -> float:
    """Largest relative error of a dot product of `n` pairs by one of `ORDERS`: γ(d)·condition / 2.

    N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., SIAM 2002, section 3.1:
    the error is at most γ(d)·Σ |x_i·y_i| with d roundings in the unit roundoff of `dtype`. Without
    underflow and overflow; inf from where the bound says nothing.
    """
    u = summation.unit_roundoff(DTYPES[dtype].scalar)
    return summation.gamma(ORDERS[order](n), u) * condition / 2
