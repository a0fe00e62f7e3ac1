"""What the jobs of a sweep are told: all that their products depend on besides code."""

from __future__ import annotations

import os
from typing import Any

from ..core.backends import source_suffix
from ..core.paths import ROOT
from ..core.space import LAUNCH_KINDS
from ..measuring.settings import MeasureSettings
from .sweeps import SweepConfig

USUAL_KINDS = [*LAUNCH_KINDS[:1]]


def sweep_params(
    sweep: SweepConfig,
    dtype: str,
    measure: MeasureSettings,
    repeats: int,
    backend: str,
    device: int | str,
    opencl_runtime: str,
) -> dict[str, Any]:
    """Everything that the measuring jobs of a sweep and dtype depend on besides their code.

    Plain values, which Snakemake compares with the last run's: a difference, and nothing else,
    measures again.
    """
    rule = measure.rule
    return {
        "axes": {a: sweep.axes[a] for a in sorted(sweep.axes)},
        "backend": backend,
        "cache_states": list(sweep.cache_states),
        "device": device,
        "dtype": dtype,
        "folder": os.path.relpath(sweep.folder.path, ROOT),
        "kernel_digest": sweep.folder.digest(source_suffix(backend)),
        # The usual kind alone is not told: what was measured before there were others stays.
        **({"launch_kinds": kinds} if (kinds := list(sweep.launch_kinds)) != USUAL_KINDS else {}),
        "measure": {
            "budget_s": rule.budget_s,
            "max_samples": rule.max_samples,
            "min_samples": rule.min_samples,
            "relative_half_width": rule.relative_half_width,
            "repeats": repeats,
            "search": _search_params(measure),
            "timeout_s": measure.cell_timeout_s,
            "warmup": measure.warmup,
            # Only where it is asked for: what was measured before there was such a key counts.
            **({} if measure.lock_clocks is None else {"lock_clocks": measure.lock_clocks}),
        },
        "opencl_runtime": opencl_runtime,
        "seed": measure.seed,
        "sizes": [[p.height, p.width] for p in sweep.problems],
        "thread_limit": measure.thread_limit,
        "variants": list(sweep.variants),
    }


def _search_params(measure: MeasureSettings) -> dict[str, Any]:
    """What `measuring.settings.settings_of` makes the search's settings of."""
    search = measure.search
    return {
        "better_probability": search.better_probability,
        "mode": str(search.mode),
        "most_share": search.most_share,
        "tolerance": search.tolerance,
        "transfer": measure.transfer,
    }


def build_params(
    sweep: SweepConfig,
    dtype: str,
    backend: str,
    device: int | str,
    opencl_runtime: str,
    cuda_arch: str | None,
) -> dict[str, Any]:
    """Everything that a build file depends on besides its code."""
    return {
        "backend": backend,
        "cuda_arch": cuda_arch,
        "device": device,
        "dtype": dtype,
        "folder": os.path.relpath(sweep.folder.path, ROOT),
        "kernel_digest": sweep.folder.digest(source_suffix(backend)),
        "opencl_runtime": opencl_runtime,
        "versions": [
            [v.variant, [list(value) for value in v.values]] for v in sweep.versions[dtype]
        ],
    }
