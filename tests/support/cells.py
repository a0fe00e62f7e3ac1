"""Cells of a data set, and runs of them, made of numbers: for tests of what reads them."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from gpushmoo import PROTOCOL_VERSION
from gpushmoo.comparing.runs import KEY, RunCells

SAMPLES = 7
PLACE = {
    "kernel": "k",
    "dtype": "float",
    "variant": "v",
    "height": 64,
    "width": 64,
    "cache_state": "warm",
    "timing_mode": "batched",
    "device_name": "D",
    "device_uuid": "d-0",
}


def cell(
    seconds: float = 1.0, half: float = 0.001, gbs: float | None = None, **columns: Any
) -> dict[str, Any]:
    """A verified cell that takes so long, or moves so much, known to `half` of it to both sides.

    It reads and writes every element of four bytes once.
    """
    place = PLACE | {name: columns[name] for name in PLACE if name in columns}
    moved = columns.get("bytes_read", 4 * place["height"] * place["width"])
    moved += columns.setdefault("bytes_written", moved)
    if gbs is None:
        gbs = moved / seconds / 1e9
    else:
        seconds = moved / gbs / 1e9
    ends = {"low": 1.0 - half, "high": 1.0 + half}
    return {
        **place,
        "cell_key": json.dumps(columns, sort_keys=True, default=str),
        "status": "ok",
        "message": None,
        "median_s": seconds,
        **{
            f"{name}_{end}_s": seconds * by
            for name in ("group", "median")
            for end, by in ends.items()
        },
        "bandwidth_gbs": gbs,
        **{f"bandwidth_{end}_gbs": gbs * by for end, by in ends.items()},
        "bytes_read": moved - columns["bytes_written"],
        "work": None,
        "work_unit": None,
        "vs_memcpy": 1.0,
        "working_set_over_cache": None,
    } | columns


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
        self._drift = drift
        self._own = own
        self._noise = noise
        self._copied = copied
        self._variants = np.repeat([f"v{g}" for g in range(groups)], cells)
        self._blocks = np.tile(np.arange(cells), groups)

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
        rng = self._rng
        n = len(self._blocks)
        drift = rng.normal(0.0, self._drift) if drift is None else drift
        planted = np.log1p([(slower or {}).get(variant, 0.0) for variant in self._variants])
        # Within one decade, and the best of a group well before the others.
        truth = np.log(2e-4) + 0.02 * self._blocks
        center = truth + planted + drift + rng.normal(0.0, self._own, n)
        parts = rng.normal(0.0, self._own / 3, (n, repeats)) + center[:, None]
        samples = np.exp(parts[:, :, None] + rng.normal(0.0, self._noise, (n, repeats, SAMPLES)))
        medians = np.median(samples, axis=2)
        copy = 3000.0 * np.exp(-self._copied * drift + rng.normal(0.0, self._own / 5))
        seconds = np.exp(np.log(medians).mean(axis=1))
        cells = pd.DataFrame(
            cell(s, kernel="made", variant=v, device_name="Made", device_uuid="made-0")
            for s, v in zip(seconds, self._variants, strict=True)
        ).assign(
            cell_key=[f"{i:04}" for i in range(n)],
            memcpy_gbs=copy,
            samples_s=list(samples.reshape(n, -1)),
            repeat_samples=[[SAMPLES] * repeats] * n,
            repeat_medians_s=list(medians),
            repeat_memcpy_gbs=[[copy] * repeats] * n,
            sample_half_width=self._noise,
            launches_per_sample=2,
            overhead_s=0.0,
            measured_at=pd.Timestamp(2026, 1, day, tz="UTC"),
            block=pd.array(self._blocks, "Int64"),
        )
        shard = {
            "protocol_version": PROTOCOL_VERSION,
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
