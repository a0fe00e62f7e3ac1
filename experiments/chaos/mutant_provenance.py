"""Changes of what a shard tells of itself beside its rows."""

from __future__ import annotations

from random import Random
from typing import Any

from mutant_file import ShardFile


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all that is no mapping or list in `value`."""
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in _leaves(v, (*path, k))]
    if isinstance(value, list):
        return [p for i, v in enumerate(value) for p in _leaves(v, (*path, i))]
    return [path]


def _other(value: Any, rng: Random) -> Any:
    """Another value of the same kind, or of another one."""
    if isinstance(value, bool) or value is None:
        return rng.choice([1, "x", not value])
    if isinstance(value, int | float):
        return rng.choice([value + 1, -value - 1, value * 2 + 1, 0.5, None, str(value)])
    return rng.choice([value + "x", "", None, value[::-1] + "y"])


def change_params(shard: ShardFile, rng: Random) -> str:
    *path, last = rng.choice(_leaves(shard.metadata["params"]))
    place = shard.metadata["params"]
    for step in path:
        place = place[step]
    place[last] = _other(place[last], rng)
    return f"{'.'.join(map(str, [*path, last]))} = {place[last]!r}"


def remove_param(shard: ShardFile, rng: Random) -> str:
    name = rng.choice(sorted(shard.metadata["params"]))
    del shard.metadata["params"][name]
    return name


def change_axes(shard: ShardFile, rng: Random) -> str:
    axes = shard.metadata["axes"]
    changed = [axes[:-1], [*axes, "more"], [], [*axes[:-1], "block_z"]]
    shard.metadata["axes"] = rng.choice(changed)
    return str(shard.metadata["axes"])


def change_version(shard: ShardFile, rng: Random) -> str:
    version = shard.metadata["schema_version"]
    shard.metadata["schema_version"] = rng.choice([version - 1, version + 1, 0, None, str(version)])
    return repr(shard.metadata["schema_version"])


def change_digest(shard: ShardFile, rng: Random) -> None:
    shard.metadata["kernel_digest"] = f"{rng.getrandbits(64):016x}"


def remove_key(shard: ShardFile, rng: Random) -> str:
    name = rng.choice(sorted(shard.metadata))
    del shard.metadata[name]
    return name


# What rows repeat of the device, or follow from.
_DEVICE = ("backend", "name", "uuid", "units", "cache")


def change_device(shard: ShardFile, rng: Random) -> str:
    name = rng.choice(_DEVICE)
    shard.metadata["device"][name] = _other(shard.metadata["device"][name], rng)
    return f"{name} = {shard.metadata['device'][name]!r}"


def change_model(shard: ShardFile, rng: Random) -> None:
    """Another device model in rows and provenance alike: the run is then of two."""
    shard.metadata["device"]["name"] = "Another GPU"
    for row in shard.rows:
        row["device_name"] = "Another GPU"


def take_metadata(shard: ShardFile, rng: Random, other: ShardFile) -> None:
    shard.metadata = other.metadata


def exchange_files(shard: ShardFile, rng: Random, other: ShardFile) -> None:
    shard.rows, other.rows = other.rows, shard.rows
    shard.metadata, other.metadata = other.metadata, shard.metadata
