"""How far a prediction may be off: measured on kernels that had no part in the fit.

What a fit leaves on its own cells says nothing of a kernel that it has not seen, and residuals of
one region none of another. So the model is fitted once for each kernel without that kernel, and
each time its errors on it are looked at: the 90th percentile of a kernel's errors is one number a
kernel. The band for a kernel that was measured is that of its own unseen cells; the band for one
that was not is the 90th percentile of all kernels' numbers, a wide band.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .fit import Bools, DeviceFit, fit_device

PROMISED = 0.9
# A kernel of fewer cells than this says little of its errors.
FEWEST_CELLS = 10
# Kernels left out are fitted with at most so many cells: only the width of the band hangs on it.
MOST_CELLS = 1200


@dataclass(frozen=True)
class Bands:
    """Half-widths in the logarithm of the time, 90 % of the cells within them.

    `of_kernel` are those of kernels that the fit knows, `of_others` that of any other; None where
    fewer than two kernels tell.
    """

    of_kernel: Mapping[str, float]
    of_others: float | None

    def half_width(self, kernel: str) -> float | None:
        """That of a kernel, known or not."""
        return self.of_kernel.get(kernel, self.of_others)


def measured_bands(described: pd.DataFrame, chosen: Bools, fit: DeviceFit) -> Bands:
    """The bands of one device's cells, of which `chosen` went into `fit`."""
    kernels = described["kernel"].to_numpy()
    off = np.abs(np.log(fit.seconds(described) / described["measured_s"].to_numpy()))
    known, unknown = {}, []
    thinned = chosen & (np.cumsum(chosen) % max(1, round(chosen.sum() / MOST_CELLS)) == 0)
    names = [k for k in sorted(set(kernels)) if (kernels == k).sum() >= FEWEST_CELLS]
    for name in names:
        mine = kernels == name
        unseen = off[mine & ~chosen] if (mine & ~chosen).any() else off[mine]
        known[name] = float(np.quantile(unseen, PROMISED))
        if len(names) > 1 and (thinned & ~mine).any():
            other = fit_device(described, thinned & ~mine)
            cells = described[mine]
            missed = np.abs(np.log(other.seconds(cells) / cells["measured_s"].to_numpy()))
            unknown.append(float(np.quantile(missed, PROMISED)))
    return Bands(known, float(np.quantile(unknown, PROMISED)) if len(unknown) > 1 else None)
