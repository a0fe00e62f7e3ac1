"""Fits the closed formula to measured cells and judges it by points it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from .closed import Floats, Ints, ModelInputs, Parameters, total_s

NAMES = ("start_s", "tile_s", "bus_s", "crowding", "overlap")
UNITS = {"start_s": "s", "tile_s": "s", "bus_s": "s", "crowding": "1", "overlap": "1"}
CONFIDENCE = 0.95
MAX_OVERLAP = 32.0


@dataclass(frozen=True)
class Estimate:
    """A parameter with its approximate 95 % interval; `identified` tells whether it has one."""

    value: float
    low: float | None
    high: float | None
    identified: bool


@dataclass(frozen=True)
class Fit:
    """A fit of one series. Errors are relative, of the predicted time; None without points.

    Where `converged` is False, `message` says why and nothing may be predicted from it.
    """

    converged: bool
    message: str
    estimates: dict[str, Estimate]
    parameters: Parameters | None
    held_out: npt.NDArray[np.bool_]
    train_median_error: float | None
    held_out_median_error: float | None
    held_out_worst_error: float | None
    held_out_worst_blocks: int | None


def choose_held_out(blocks: Ints, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """A random `share` of the points; the smallest and the largest always stay in the fit."""
    held = np.zeros(len(blocks), dtype=bool)
    inner = np.flatnonzero((blocks != blocks.min()) & (blocks != blocks.max()))
    n = min(len(inner), round(share * len(blocks)))
    held[np.random.default_rng(seed).choice(inner, size=n, replace=False)] = n > 0
    return held


def fit_series(blocks: Ints, seconds: Floats, machine: ModelInputs, share: float, seed: int) -> Fit:
    """Fit the closed formula to `seconds` (medians) over `blocks` (distinct, positive).

    Residuals are logarithms of predicted over measured time, so that a slow and a fast point
    weigh alike; a soft loss keeps one outlier from bending the curve.
    """
    held = choose_held_out(blocks, share, seed)
    train = ~held
    free = _free_names(machine, blocks)
    if train.sum() < len(free) + 2:
        reason = f"{int(train.sum())} points are too few for {len(free)} parameters"
        return _failed(reason, held)
    scale = _start_values(blocks[train], seconds[train], machine)

    def residuals(x: Floats) -> Floats:
        p = _parameters(x, free, scale)
        predicted = total_s(blocks[train], machine, p)
        return np.asarray(np.log(predicted / seconds[train]))

    best = None
    # The knee makes the loss bumpy in `overlap`: several starts, the best of them wins.
    for overlap in (1.2, 2.5, 6.0):
        start = np.array([overlap if n == "overlap" else 1.0 for n in free])
        start[free.index("start_s")] = 0.1
        if "crowding" in free:
            start[free.index("crowding")] = 0.1
        lower = [
            1.0 if n == "overlap" else 0.0 if n in ("start_s", "crowding", "bus_s") else 1e-6
            for n in free
        ]
        upper = [MAX_OVERLAP if n == "overlap" else np.inf for n in free]
        found = scipy.optimize.least_squares(
            residuals, start, bounds=(lower, upper), loss="soft_l1", f_scale=0.05, max_nfev=2000
        )
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    if best.status <= 0 or not np.all(np.isfinite(best.x)):
        return _failed(f"the optimiser stopped without converging ({best.message})", held)
    estimates = interval_estimates(best, free, scale, int(train.sum()))
    return _judge(_parameters(best.x, free, scale), estimates, blocks, seconds, machine, held)


def _free_names(machine: ModelInputs, blocks: Ints) -> list[str]:
    """Parameters that this series can say anything about."""
    crowded = machine.per_unit > 1 and blocks.max() > machine.units
    return [n for n in NAMES if n != "crowding" or crowded]


def _start_values(blocks: Ints, seconds: Floats, machine: ModelInputs) -> dict[str, float]:
    """Orders of magnitude: the fit works on multiples of these."""
    first = int(np.argmin(blocks))
    tile = float(seconds[first] / np.ceil(machine.tiles / blocks[first]))
    return {
        "start_s": float(seconds.min()),
        "tile_s": tile,
        "bus_s": float(seconds.min()) / machine.tiles,
        "crowding": 1.0,
        "overlap": 1.0,
    }


def _parameters(x: Floats, free: list[str], scale: dict[str, float]) -> Parameters:
    values = {n: float(v) * scale[n] for n, v in zip(free, x, strict=True)}
    return Parameters(
        values["start_s"],
        values["tile_s"],
        values["bus_s"],
        values.get("crowding", 0.0),
        values["overlap"],
    )


def interval_estimates(
    found: Any, free: list[str], scale: dict[str, float], n: int
) -> dict[str, Estimate]:
    """Intervals from the linearised covariance; none at a bound or without effect."""
    x, jac, fun = (np.asarray(getattr(found, a)) for a in ("x", "jac", "fun"))
    active = np.asarray(found.active_mask)
    columns = np.linalg.norm(jac, axis=0)
    live = (active == 0) & (columns > 1e-9 * max(1.0, float(columns.max())))
    sigma = np.full(len(x), np.inf)
    if live.any() and n > live.sum():
        j = jac[:, live]
        variance = float(fun @ fun) / (n - live.sum())
        if np.linalg.matrix_rank(j) == live.sum():
            # jᵀj would square the condition number and may be singular though j is not.
            _, s, vt = np.linalg.svd(j, full_matrices=False)
            sigma[live] = np.sqrt(((vt / s[:, None]) ** 2).sum(axis=0) * variance)
    half = sigma * scipy.special.stdtrit(max(1, n - int(live.sum())), 0.5 + CONFIDENCE / 2)
    out = {}
    for i, name in enumerate(free):
        known = bool(np.isfinite(half[i]))
        # The interval of the linearised model may reach past what the parameter can be.
        lower, upper = (1.0, MAX_OVERLAP) if name == "overlap" else (0.0, np.inf)
        low = max(lower, float(x[i] - half[i])) * scale[name] if known else None
        high = min(upper, float(x[i] + half[i])) * scale[name] if known else None
        out[name] = Estimate(float(x[i]) * scale[name], low, high, known)
    return out


def _judge(
    p: Parameters,
    estimates: dict[str, Estimate],
    blocks: Ints,
    seconds: Floats,
    machine: ModelInputs,
    held: npt.NDArray[np.bool_],
) -> Fit:
    error = np.abs(total_s(blocks, machine, p) / seconds - 1.0)
    worst = int(np.argmax(np.where(held, error, -1.0))) if held.any() else None
    return Fit(
        converged=True,
        message="converged",
        estimates=estimates,
        parameters=p,
        held_out=held,
        train_median_error=float(np.median(error[~held])),
        held_out_median_error=float(np.median(error[held])) if held.any() else None,
        held_out_worst_error=None if worst is None else float(error[worst]),
        held_out_worst_blocks=None if worst is None else int(blocks[worst]),
    )


def _failed(reason: str, held: npt.NDArray[np.bool_]) -> Fit:
    return Fit(False, reason, {}, None, held, None, None, None, None)
