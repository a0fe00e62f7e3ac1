"""What recorded cells of another size, type or device let expect of a group's candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .candidates import Candidate, Prior

Floats = npt.NDArray[np.float64]

Params = tuple[tuple[str, int], ...]


def expected_of(candidates: Sequence[Candidate], priors: Sequence[Prior]) -> Floats | None:
    """The logarithm of how much slower than the best each candidate was elsewhere.

    Several priors of the same launch parameters count as their geometric mean. A candidate whose
    parameters were not measured elsewhere (values of some axes follow from the device) is as slow
    as the one with the nearest parameters, by the sum of the differences of their logarithms. None
    where no prior has the candidates' axes. Raises ValueError for a prior faster than the best.
    """
    names = [name for name, _ in candidates[0].params]
    known: dict[Params, list[float]] = {}
    for prior in priors:
        if not 1.0 <= prior.slower < math.inf:
            raise ValueError(f"a cell cannot be {prior.slower} times as slow as the fastest")
        if [name for name, _ in prior.params] == names:
            known.setdefault(prior.params, []).append(math.log(prior.slower))
    if not known:
        return None
    means = {params: sum(found) / len(found) for params, found in known.items()}
    places = np.array([_logarithms(params) for params in means])
    slower = np.array(list(means.values()))
    return np.array(
        [
            means[c.params] if c.params in means else _nearest(c.params, places, slower)
            for c in candidates
        ]
    )


def _nearest(params: Params, places: Floats, slower: Floats) -> float:
    away = np.abs(places - _logarithms(params)).sum(axis=1)
    return float(slower[np.argmin(away)])


def _logarithms(params: Params) -> Floats:
    values = np.array([value for _, value in params], dtype=np.float64)
    logarithms: Floats = np.sign(values) * np.log2(1.0 + np.abs(values))
    return logarithms
