"""Runs made of numbers, for tests of what compares them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from gpushmoo.comparing.runs import KEY, RunCells

SAMPLES = 7


class Machine:
    """Draws runs: each has a drift of its own, each cell in it one of its own, each sample too.

    All are standard deviations of logarithms of times; the copy has the share `copied` of a drift.
    """

    def __init__(
        self,
        seed: int,
        groups: int = 6,
        cells: int = 12,
        drift: float = 0.0,
        own: float = 0.003,
        noise: float = 0.002,
        copied: float = 1.0,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._drift, self._own, self._noise, self._copied = drift, own, noise, copied
        names = [(f"v{g}", i) for g in range(groups) for i in range(cells)]
        self._truth = pd.DataFrame(
            {
                "variant": [variant for variant, _ in names],
                "block": pd.array([i for _, i in names], "Int64"),
                # Within one decade, and the best of a group well before the others.
                "log_s": [np.log(2e-4) + 0.02 * i for _, i in names],
            }
        )

    def run(
        self,
        name: str = "run",
        slower: Mapping[str, float] | None = None,
        repeats: int = 2,
        drift: float | None = None,
        day: int = 1,
        **provenance: Any,
    ) -> RunCells:
        """A run of that day in which the variants in `slower` take longer by that share."""
        rng, truth = self._rng, self._truth
        n = len(truth)
        drift = rng.normal(0.0, self._drift) if drift is None else drift
        planted = truth["variant"].map(lambda v: np.log1p((slower or {}).get(v, 0.0))).to_numpy()
        center = truth["log_s"].to_numpy() + planted + drift + rng.normal(0.0, self._own, n)
        parts = rng.normal(0.0, self._own / 3, (n, repeats)) + center[:, None]
        samples = np.exp(parts[:, :, None] + rng.normal(0.0, self._noise, (n, repeats, SAMPLES)))
        medians = np.median(samples, axis=2)
        copy = 3000.0 * np.exp(-self._copied * drift + rng.normal(0.0, self._own / 5))
        seconds = np.exp(np.log(medians).mean(axis=1))
        cells = pd.DataFrame(
            {
                "kernel": "made",
                "dtype": "float",
                "variant": truth["variant"],
                "height": 64,
                "width": 64,
                "cache_state": "warm",
                "launch_kind": "back_to_back",
                "device_name": "Made",
                "device_uuid": "made-0",
                "cell_key": [f"{i:04}" for i in range(n)],
                "status": "ok",
                "message": None,
                "median_s": seconds,
                "own_low_s": seconds * 0.999,
                "own_high_s": seconds * 1.001,
                "bandwidth_gbs": 1e-4 / seconds,
                "bandwidth_low_gbs": 0.999e-4 / seconds,
                "bandwidth_high_gbs": 1.001e-4 / seconds,
                "copy_gbs": copy,
                "samples_s": list(samples.reshape(n, -1)),
                "repeat_samples": [[SAMPLES] * repeats] * n,
                "repeat_medians_s": list(medians),
                "repeat_copy_gbs": [[copy] * repeats] * n,
                "within_half_width": self._noise,
                "measured_at": pd.Timestamp(2026, 1, day, tz="UTC"),
                "block": truth["block"],
            }
        )
        shard = {
            "protocol_version": 1,
            "written_at": "2026-01-01T00:00:00+00:00",
            "device": {"name": "Made"},
            "controls": [],
            "params": {"folder": "kernels/made", "dtype": "float", "measure": {"min_samples": 7}},
            **provenance,
        }
        return RunCells(name, cells.set_index(KEY, drop=False).rename_axis([None, None]), [shard])

    def runs(self, n: int, **options: Any) -> list[RunCells]:
        """So many runs of the same thing."""
        return [self.run(f"r{i:02}", **options) for i in range(n)]
