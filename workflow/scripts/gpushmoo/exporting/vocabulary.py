"""Define the words of other programs' files, for the code that writes and that reads these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.schema import Status

# Of T4, whose schemas are in the PyPI wheel ``kernel-tuner`` (``kernel_tuner/schema/T4/1.0.0``).
VERSION = "1.0.0"
# T4's names of statuses. A cell that was not tried, or whose device failed, is left out.
INVALIDITY = {
    Status.OK: "correct",
    Status.WRONG_RESULT: "correctness",
    Status.TIMING_MISMATCH: "correctness",
    Status.TIMEOUT: "timeout",
    Status.BUILD_FAILED: "compile",
    Status.LAUNCH_FAILED: "runtime",
    Status.WORKLOAD_FAILED: "runtime",
    Status.OUT_OF_RESOURCES: "runtime",
    Status.TOO_MANY_THREADS: "constraints",
    Status.INVALID: "constraints",
}
# Kernel Tuner's entry for a cell without a time, by T4's word.
ERRORS = {"compile": "CompilationFailedConfig", "constraints": "InvalidConfig"}
# Suffix of file names in Triton's autotuning cache.
AUTOTUNE = ".autotune.json"


def t4_metadata(provenance: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the device, operating system and versions in T4's form, each distinct one once."""
    shards = list(provenance)
    # List a device once, even if the free memory of a CPU changed meanwhile.
    by_uuid = {shard["device"]["uuid"]: shard["device"] for shard in shards}
    devices = _different({k: v for k, v in d.items() if k != "uuid"} for d in by_uuid.values())
    systems = _different(shard["host"].get("system", "unknown") for shard in shards)
    versions = _different(
        text
        for shard in shards
        for text in (
            f"gpushmoo=={shard['gpushmoo']}",
            f"python=={shard['host'].get('python', 'unknown')}",
            *str(shard["device"]["runtime"]).split(", "),
        )
    )
    metadata = {
        "hardware": {"hardware_description": devices, "operating_system": "; ".join(systems)},
        "environment": {
            "device_query": {"drivers": _different(s["device"]["driver"] for s in shards)},
            "requirements": versions,
        },
    }
    return {"schema_version": VERSION, "metadata": metadata}


def _different(values: Iterable[Any]) -> list[Any]:
    """Return each value once, in the order of first occurrence."""
    listed = list(values)
    return [value for n, value in enumerate(listed) if value not in listed[:n]]
