"""Files of Kernel Tuner with a planted winner and with a planted tie."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Relative noise of a sample, and how much slower the second fastest is.
NOISE, APART = 0.01, 0.1
Samples = Mapping[int, Sequence[float]]


def samples(factors: Mapping[int, float], n: int = 32, seed: int = 1) -> dict[int, list[float]]:
    """Seconds by the value of ``block_x``; the first sample is that of a cold device."""
    rng = np.random.default_rng(seed)
    noise = np.exp(NOISE * rng.standard_normal((len(factors), n)))
    noise[:, 0] *= 3.0
    return {
        x: (1e-3 * f * own).tolist() for (x, f), own in zip(factors.items(), noise, strict=True)
    }


WINNER = samples({x: 1.0 + APART * i for i, x in enumerate(range(32, 32 * 21, 32))})
TIE = samples({x: 1.0 if x < 128 else 1.0 + APART * x / 128 for x in range(32, 32 * 21, 32)})


def cache(times: Samples, **more: Any) -> dict[str, Any]:
    """A cache file of Kernel Tuner."""
    entries: dict[str, Any] = {
        f"{x},{1}": {
            "block_x": x,
            "mode": "a",
            "time": 1e3 * float(np.mean(s)),
            "times": [1e3 * t for t in s],
        }
        for x, s in times.items()
    }
    entries["2048,1"] = {"block_x": 2048, "mode": "a", "__error__": "InvalidConfig"}
    head = {"device_name": "GPU", "kernel_name": "copy", "problem_size": [64, 32]}
    keys = {"tune_params_keys": ["block_x", "mode"], "tune_params": {}, "objective": "time"}
    return {**head, **keys, "cache": entries, **more}


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path
