"""Closed formula for a grid of many short blocks: what one block costs its multiprocessor.

A grid of N blocks on U multiprocessors takes N/U times what a multiprocessor spends on one block.
That is a time between two blocks, not the life of one, and five limits set it (W: warps of a block,
R: blocks that a multiprocessor holds at once, S: distinct sectors that a block touches, Q: distinct
sectors of each warp, summed over the block's warps):

* launch:     launch_s. Blocks are started one after the other, at most one per so long.
* residency:  (life_s + warp_s · W) / R. A block holds its place for a latency that no other work
              shortens, and for a little more with every warp; R places turn over in that time
              (Little's law).
* issue:      issue_s · W. The pipelines of a multiprocessor take one warp after the other.
* requests:   request_s · Q. A warp's access is split into a request for each sector that it
              touches; a sector that two warps share is asked for twice.
* memory:     sector_s · S. So does its share of the memory system with sectors of 32 bytes:
              32 · U / sector_s are the device's bytes per second.

They act at once, so the largest counts and near-equal ones add to each other a little: the time is
(Σ limitᑫ)^(1/q) with q = overlap, as in `closed`: 1 is their sum, ∞ the largest alone.

All times are seconds; a time in cycles is that times the clock. What the formula leaves out is not
noise but the same for like shapes, so intervals of its parameters are too narrow rather than wide.

What S and Q are depends on how an image lies in memory. The hypotheses are that they do not matter
("none"), or that they follow from one of `footprint.LAYOUTS`; cells unseen by the fit decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from ...core.display import percent
from .closed import Floats, Ints
from .fit import MAX_OVERLAP, Estimate, choose_held_out, interval_estimates

NAMES = ("launch_s", "life_s", "warp_s", "issue_s", "request_s", "sector_s", "overlap")
UNITS = {n: "1" if n == "overlap" else "s" for n in NAMES}
# The limits of the formula, with the parameters that make each of them up.
LIMITS: Mapping[str, tuple[str, ...]] = {
    "launch": ("launch_s",),
    "residency": ("life_s", "warp_s"),
    "issue": ("issue_s",),
    "requests": ("request_s",),
    "memory": ("sector_s",),
}
NONE = "none"
# What a hypothesis on the layout adds.
OF_LAYOUT = ("request_s", "sector_s")
# These terms must lower the 95th percentile of the errors by this share to be believed.
WORTH = 0.1
# Multiples of the start values: a limit at the lower one is absent in all but name.
LEAST = 1e-6
STARTS = (2.0, 6.0, 16.0)

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Blocks:
    """Launches of one kernel and problem on one device; all arrays have shape (cells,).

    `resident` is R, blocks per multiprocessor as the runtime tells it; `requests` holds Q and
    `sectors` S by the name of a layout.
    """

    units: int
    blocks: Ints
    threads: Ints
    warps: Ints
    resident: Ints
    requests: Mapping[str, Floats]
    sectors: Mapping[str, Floats]

    def limits(self, values: Mapping[str, float], layout: str) -> dict[str, Floats]:
        """Seconds per block and multiprocessor that each limit alone would take.

        `values` are parameters by name; a limit that lacks one is left out.
        """
        warps, resident = self.warps.astype(float), self.resident.astype(float)
        found = {}
        if "launch_s" in values:
            found["launch"] = np.full(len(warps), values["launch_s"])
        if "life_s" in values and "warp_s" in values:
            found["residency"] = (values["life_s"] + values["warp_s"] * warps) / resident
        if "issue_s" in values:
            found["issue"] = values["issue_s"] * warps
        if "request_s" in values:
            found["requests"] = values["request_s"] * self.requests[layout]
        if "sector_s" in values:
            found["memory"] = values["sector_s"] * self.sectors[layout]
        return found

    def total_s(self, values: Mapping[str, float], layout: str) -> Floats:
        """Predicted seconds of each launch under `values`, all limits taken together."""
        logs = np.log(np.stack(list(self.limits(values, layout).values())))
        return self.blocks / self.units * np.exp(_joined(logs, values["overlap"])[0])

    def dominant(self, values: Mapping[str, float], layout: str) -> list[str]:
        """The name of the largest limit of each launch."""
        limits = self.limits(values, layout)
        names = list(limits)
        return [names[i] for i in np.argmax(np.stack(list(limits.values())), axis=0)]


@dataclass(frozen=True)
class Errors:
    """Median and 95th percentile of |predicted / measured − 1|."""

    median: float
    p95: float


@dataclass(frozen=True)
class Hypothesis:
    """A fit of the formula. Where `converged` is False, `message` says why and no more is known.

    `values` are the parameters; errors are None where there are no such cells.
    """

    converged: bool
    message: str
    estimates: dict[str, Estimate]
    values: dict[str, float]
    train: Errors | None
    held_out: Errors | None

    @property
    def judged(self) -> Errors | None:
        """The errors by which it is compared with others: of cells not seen, if there are any."""
        return self.held_out or self.train


@dataclass(frozen=True)
class BlockFit:
    """The fits under all hypotheses; `best` names the one to believe, None where none converged.

    `reason` says in one sentence why. `without` holds, for each limit of the best, the fit
    that lacks it.
    """

    held_out: Bools
    hypotheses: dict[str, Hypothesis]
    best: str | None
    reason: str
    without: dict[str, Hypothesis]


def fit_blocks(cells: Blocks, seconds: Floats, share: float, seed: int) -> BlockFit:
    """Fit the formula to `seconds` (medians) under every hypothesis and choose among these.

    About a `share` of the cells is held out: all cells of randomly chosen numbers of threads, as
    cells that agree in it are too much alike to test each other. Residuals are logarithms of
    predicted over measured time, with a soft loss, as in `fit`.
    """
    threads, place = np.unique(cells.threads, return_inverse=True)
    held = choose_held_out(threads, share, seed)[place] if len(threads) else np.zeros(0, bool)
    job = _Job(cells, seconds, held)
    fits = {NONE: job.fit(NONE, [n for n in NAMES if n not in OF_LAYOUT])}
    fits |= {layout: job.of_layout(layout) for layout in cells.sectors}
    best, reason = _choose(fits)
    without: dict[str, Hypothesis] = {}
    if best is not None:
        for limit, names in LIMITS.items():
            if set(names) <= set(fits[best].values):
                kept = [n for n in fits[best].values if n not in names]
                without[limit] = job.fit(best, kept)
    return BlockFit(held, fits, best, reason, without)


def _choose(fits: Mapping[str, Hypothesis]) -> tuple[str | None, str]:
    """The hypothesis to believe and why: a layout only where it is worth its parameters."""
    p95 = {n: f.judged.p95 for n, f in fits.items() if f.judged is not None}
    layouts = sorted((n for n in p95 if n != NONE), key=lambda n: p95[n])
    if not layouts:
        return (NONE if NONE in p95 else None), fits[NONE].message
    best, rest = layouts[0], layouts[1:]
    without = _percent(p95.get(NONE))
    if NONE in p95 and not _worth(p95[best], p95[NONE]):
        return NONE, (
            "The sectors touched do not show: 95 % of the cells are predicted to within "
            f"{without} without them and {_percent(p95[best])} with them."
        )
    said = [f"{without} without them", *(f"{_percent(p95[n])} under '{n}'" for n in rest)]
    return best, (
        f"The sectors touched under the layout '{best}' show: 95 % of the cells are predicted to "
        f"within {_percent(p95[best])}, against {' and '.join(said)}."
    )


def _worth(error: float, rival: float) -> bool:
    return error < (1 - WORTH) * rival


def _percent(error: float | None) -> str:
    return "unknown" if error is None else percent(error)


def _joined(logs: Floats, overlap: float) -> tuple[Floats, Floats]:
    """Logarithm of the joined limits, and each limit's share of the sum of powers.

    `logs` are the logarithms of the limits, shape (limits, cells).
    """
    top = logs.max(axis=0)
    powers = np.exp(overlap * (logs - top))
    total = powers.sum(axis=0)
    return top + np.log(total) / overlap, powers / total


@dataclass(frozen=True)
class _Job:
    """Fits to one table, of the cells that are not held out."""

    cells: Blocks
    seconds: Floats
    held: Bools

    def of_layout(self, layout: str) -> Hypothesis:
        """Sectors of blocks, and the requests of warps where they are worth their parameter."""
        plain = self.fit(layout, [n for n in NAMES if n != "request_s"])
        full = self.fit(layout, list(NAMES))
        if plain.judged is None or full.judged is None:
            return plain
        return full if _worth(full.judged.p95, plain.judged.p95) else plain

    def fit(self, layout: str, free: list[str]) -> Hypothesis:
        """Fit the parameters `free` of the formula; the limits of the others are absent."""
        train = ~self.held
        n = int(train.sum())
        if n < len(free) + 2:
            return _failed(f"{n} points are too few for {len(free)} parameters")
        seen = _Seen(_subset(self.cells, train), self.seconds[train], layout, free)
        lower = [1.0 if name == "overlap" else LEAST for name in free]
        upper = [MAX_OVERLAP if name == "overlap" else np.inf for name in free]
        # A limit that is small at first has little slope to grow by: several starts.
        found = [
            scipy.optimize.least_squares(
                seen.residuals,
                [overlap if name == "overlap" else 1.0 for name in free],
                jac=seen.jacobian,
                bounds=(lower, upper),
                loss="soft_l1",
                f_scale=0.05,
                # What does not matter may else creep towards nothing for thousands of steps.
                ftol=1e-6,
                max_nfev=2000,
            )
            for overlap in STARTS
        ]
        best = min(found, key=lambda f: (f.status <= 0, f.cost))
        if best.status <= 0 or not np.all(np.isfinite(best.x)):
            return _failed(f"the optimiser stopped without converging ({best.message})")
        values = seen.values(best.x)
        error = np.abs(self.cells.total_s(values, layout) / self.seconds - 1.0)
        estimates = interval_estimates(best, free, seen.scale, n)
        judged = (_errors(error[train]), _errors(error[self.held]))
        return Hypothesis(True, "converged", estimates, values, *judged)


class _Seen:
    """Residuals over the cells of the fit and their derivatives; x are multiples of `scale`."""

    def __init__(self, cells: Blocks, seconds: Floats, layout: str, free: Sequence[str]) -> None:
        self.cells, self.layout, self.free = cells, layout, free
        self.each = seconds * cells.units / cells.blocks
        sectors = cells.sectors[layout] if layout in cells.sectors else np.ones(1)
        requests = cells.requests[layout] if layout in cells.requests else np.ones(1)
        # Orders of magnitude by which every limit matters somewhere.
        scale = {
            "launch_s": float(self.each.min()),
            "life_s": float(np.median(self.each * cells.resident)) / 2,
            "warp_s": float(np.median(self.each * cells.resident / cells.warps)) / 2,
            "issue_s": float(np.median(self.each / cells.warps)) / 2,
            "request_s": float(np.median(self.each / requests)) / 2,
            "sector_s": float(np.median(self.each / sectors)) / 2,
            "overlap": 1.0,
        }
        self.scale = {n: scale[n] for n in free}

    def values(self, x: Floats) -> dict[str, float]:
        """Parameters by name."""
        return {n: float(v) * self.scale[n] for n, v in zip(self.free, x, strict=True)}

    def residuals(self, x: Floats) -> Floats:
        """log(predicted / measured), shape (cells,)."""
        values = self.values(x)
        limits = np.stack(list(self.cells.limits(values, self.layout).values()))
        return np.asarray(_joined(np.log(limits), values["overlap"])[0] - np.log(self.each))

    def jacobian(self, x: Floats) -> Floats:
        """Derivatives of the residuals by x, shape (cells, parameters)."""
        values = self.values(x)
        limits = self.cells.limits(values, self.layout)
        logs = np.log(np.stack(list(limits.values())))
        joined, shares = _joined(logs, values["overlap"])
        share = dict(zip(limits, shares, strict=True))
        out = np.empty((len(self.each), len(self.free)))
        for i, name in enumerate(self.free):
            if name == "overlap":
                out[:, i] = ((shares * logs).sum(axis=0) - joined) / values[name]
                continue
            limit = next(k for k, names in LIMITS.items() if name in names)
            part = np.ones(len(self.each))
            if limit == "residency":
                per = self.cells.warps if name == "warp_s" else part
                part = values[name] * per / (limits[limit] * self.cells.resident)
            out[:, i] = share[limit] * part / x[i]
        return out


def _subset(cells: Blocks, keep: Bools) -> Blocks:
    return Blocks(
        cells.units,
        cells.blocks[keep],
        cells.threads[keep],
        cells.warps[keep],
        cells.resident[keep],
        {layout: q[keep] for layout, q in cells.requests.items()},
        {layout: s[keep] for layout, s in cells.sectors.items()},
    )


def _errors(error: Floats) -> Errors | None:
    if not len(error):
        return None
    return Errors(float(np.median(error)), float(np.quantile(error, 0.95)))


def _failed(reason: str) -> Hypothesis:
    return Hypothesis(False, reason, {}, {}, None, None)
