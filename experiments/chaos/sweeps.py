"""The small sweeps that are measured under attack, how they may be edited, and the cells they hold.

The cells are enumerated here anew, from the configuration alone: what judges a run must not share
an error with what plans it.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml
from copies import write_copy

RUN = "chaos"
Config = dict[str, Any]

SPIN = "chaos_spin"
COPY = "copy2d_coalesced"
ITEMSIZE = {"float": 4, "double": 8}
# Launches are checked against this and a grace of the library's own, so that rounds stay short.
CELL_TIMEOUT_S = 1.0

# Its launches take some ten milliseconds, so that strikes meet a process that is in a kernel: about
# so many steps a launch in all.
_TURNS = """
    def more(self, cell, blocks):
        return (np.uint32(12_000_000 // blocks),)

"""
_SPIN = """
    uint state = 1;
    if (get_local_id(0) == 0)
        for (uint t = 0; t < turns; ++t) {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
        }
    if (state == 0)
        return;
"""

BASE: Config = {
    "run": RUN,
    "backend": "opencl",
    "seed": 1,
    "only": [COPY, SPIN],
    "kernels": {
        COPY: {
            "dtypes": ["float"],
            "variants": ["element"],
            "sizes": [48, 64],
            "cache": ["warm"],
            "axes": {"block_x": [8, 16, 32], "block_y": [4, 8]},
        },
        SPIN: {
            "dtypes": ["float"],
            "variants": ["plain"],
            "sizes": [48, 64],
            "cache": ["warm"],
            "axes": {"block_x": [32, 64, 128, 256]},
        },
    },
    "measure": {
        "repeats": 2,
        "min_samples": 6,
        "max_samples": 6,
        "warmup": 0,
        "cell_timeout_s": CELL_TIMEOUT_S,
        "cells_per_shard": 4,
    },
    "simulate": None,
    "chapters": None,
}


def write_kernel(root: Path) -> None:
    """Put the kernel that takes its time into the project at `root`."""
    axes = {"block_x": [32, 64]}
    write_copy(root, SPIN, axes, ("float", "double"), (64,), _SPIN, "const uint turns", _TURNS)


def write_config(root: Path, config: Config) -> str:
    """Write the configuration file; its name."""
    (root / "chaos.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return "chaos.yaml"


def other_config() -> Config:
    """A configuration with shards of the same names as those of BASE, but other cells in them."""
    config = copy.deepcopy(BASE)
    config["kernels"][COPY]["axes"]["block_x"] = [4, 8, 64]
    config["kernels"][SPIN]["axes"]["block_x"] = [16, 64, 128, 512]
    return config


def _sweep(config: Config, rng: Random) -> dict[str, Any]:
    found: dict[str, Any] = config["kernels"][rng.choice(config["only"])]
    return found


def _axis(config: Config, rng: Random) -> list[int]:
    axes = _sweep(config, rng)["axes"]
    found: list[int] = axes[rng.choice(sorted(axes))]
    return found


def _add_value(config: Config, rng: Random) -> None:
    values = _axis(config, rng)
    values.append(rng.choice([v for v in (2, 4, 8, 16, 24, 32, 64, 128) if v not in values]))
    # A plan that only grows would make rounds longer and longer.
    del values[:-4]


def _drop_value(config: Config, rng: Random) -> None:
    values = _axis(config, rng)
    if len(values) > 1:
        values.remove(rng.choice(values))


def _change_value(config: Config, rng: Random) -> None:
    values = _axis(config, rng)
    place = rng.randrange(len(values))
    values[place] = rng.choice([v for v in (2, 4, 8, 16, 24, 32, 64, 128) if v not in values])


def _change_sizes(config: Config, rng: Random) -> None:
    sizes = rng.sample([40, 48, 64, 72], 2)
    _sweep(config, rng)["sizes"] = sizes


def _change_dtypes(config: Config, rng: Random) -> None:
    sweep = _sweep(config, rng)
    sweep["dtypes"] = ["double"] if sweep["dtypes"] == ["float"] else ["float"]


def _change_cells_per_shard(config: Config, rng: Random) -> None:
    before = config["measure"]["cells_per_shard"]
    config["measure"]["cells_per_shard"] = 1000 if before == 4 else 4


def _change_repeats(config: Config, rng: Random) -> None:
    config["measure"]["repeats"] = 3 - config["measure"]["repeats"]


def _change_seed(config: Config, rng: Random) -> None:
    config["seed"] += 1


def _change_samples(config: Config, rng: Random) -> None:
    config["measure"]["max_samples"] = 13 - config["measure"]["max_samples"]


def _change_only(config: Config, rng: Random) -> None:
    config["only"] = rng.choice([[COPY], [SPIN]]) if len(config["only"]) > 1 else [COPY, SPIN]


EDITS: dict[str, Callable[[Config, Random], None]] = {
    "axis value added": _add_value,
    "axis value removed": _drop_value,
    "axis value changed": _change_value,
    "sizes": _change_sizes,
    "dtypes": _change_dtypes,
    "cells_per_shard": _change_cells_per_shard,
    "repeats": _change_repeats,
    "seed": _change_seed,
    "max_samples": _change_samples,
    "only": _change_only,
}


@dataclass(frozen=True)
class PlannedCell:
    """A cell that a complete run must hold once; `axes` are its launch parameters by name."""

    sweep: str
    dtype: str
    variant: str
    height: int
    width: int
    cache_state: str
    axes: tuple[tuple[str, int], ...]

    @property
    def key(self) -> str:
        """Sixteen hex digits, as documented: a hash of what the cell is."""
        what = [
            *(self.sweep, self.dtype, self.variant, [self.height, self.width]),
            *(self.axes, self.cache_state),
        ]
        text = json.dumps(what, separators=(",", ":")).encode()
        return hashlib.blake2b(text, digest_size=8).hexdigest()

    @property
    def threads(self) -> int:
        """Of a block."""
        named = dict(self.axes)
        return named["block_x"] * named.get("block_y", 1)

    @property
    def bytes_each_way(self) -> int:
        """Bytes that are read, and as many that are written."""
        return self.height * self.width * ITEMSIZE[self.dtype]


def planned_cells(config: Config) -> list[PlannedCell]:
    """All cells of a configuration whose axes are lists and whose sizes are squares."""
    found = []
    for name in config["only"]:
        sweep = config["kernels"][name]
        axes = sorted(sweep["axes"])
        points = itertools.product(*(sorted(sweep["axes"][a]) for a in axes))
        for dtype, variant, size, state, point in itertools.product(
            sweep["dtypes"], sweep["variants"], sweep["sizes"], sweep["cache"], points
        ):
            values = tuple(zip(axes, point, strict=True))
            found.append(PlannedCell(name, dtype, variant, size, size, state, values))
    return found


def shard_counts(config: Config) -> dict[tuple[str, str], int]:
    """Number of shards by sweep and dtype: a power of two, at most one for each size and state."""
    found = {}
    for name in config["only"]:
        sweep = config["kernels"][name]
        rounds = len(sweep["sizes"]) * len(sweep["cache"])
        cells = rounds * len(sweep["variants"])
        for values in sweep["axes"].values():
            cells *= len(values)
        count = 1
        while count * config["measure"]["cells_per_shard"] < cells and count < rounds:
            count *= 2
        found.update({(name, dtype): min(count, rounds) for dtype in sweep["dtypes"]})
    return found


def shard_paths(config: Config) -> dict[str, tuple[str, str, int, int, int]]:
    """Sweep, dtype, index, count and repeat of every shard by its path within ``cells/``."""
    found = {}
    for (sweep, dtype), count in shard_counts(config).items():
        for index in range(count):
            for repeat in range(1, config["measure"]["repeats"] + 1):
                name = f"{index:04d}-of-{count:04d}"
                name += f".repeat-{repeat}" if repeat > 1 else ""
                place = f"{sweep}/{dtype}/{name}.parquet"
                found[place] = (sweep, dtype, index, count, repeat)
    return found
