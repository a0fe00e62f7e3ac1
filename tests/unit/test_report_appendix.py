"""The closing tables: rows that say the same are one, and nothing is lost by it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from gpushmoo.model.machine import COLUMNS, machine_facts
from gpushmoo.report.appendix import device_numbers, machine_tables, provenance_rows
from hypothesis import given
from hypothesis import strategies as st

BUILDS = {"plain": "-DA=1"}


def shard(part: int = 1, count: int = 1, device: str = "GPU-0", **changes: Any) -> dict[str, Any]:
    """Provenance of a shard; `changes` of its own values or of its parameters."""
    params = {
        "folder": "kernels/k",
        "dtype": "float",
        "repeat": 1,
        "shard": [part - 1, count],
        "sizes": [[4096, 4096]],
        "axes": {"block_x": [8]},
        "variants": ["plain"],
        "cache_states": ["warm"],
    }
    told = {
        "kernel_digest": "d",
        "written_at": "2026-11-21T12:30:47+00:00",
        "builds": BUILDS,
        "device": {"uuid": device, "name": "H200"},
        "machine_code": None,
    }
    for name, value in changes.items():
        (params if name in params else told)[name] = value
    return {**told, "params": params}


def test_what_was_measured_of_the_same_code_shares_a_row() -> None:
    parts = [shard(1, 2), shard(2, 2), shard(dtype="double"), shard(sizes=[[512, 512]])]
    [row] = provenance_rows(parts)
    assert (row["kernel"], row["types"], row["shards"], row["digest"]) == (
        "k",
        "float, double",
        "4",
        "d",
    )


@pytest.mark.parametrize("other", [{"kernel_digest": "e"}, {"folder": "kernels/other"}])
def test_parts_of_other_code_stand_apart(other: dict[str, Any]) -> None:
    assert [r["shards"] for r in provenance_rows([shard(1, 2), shard(2, 2, **other)])] == ["1", "1"]


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (["2026-11-21T12:30:47", "2026-11-21T12:30:01"], "2026-11-21 12:30"),
        (["2026-11-21T14:50:40", "2026-11-21T12:30:47"], "2026-11-21 12:30 to 14:50"),
        (["2026-11-21T23:59:00", "2026-11-22T00:01:00"], "2026-11-21 23:59 to 2026-11-22 00:01"),
    ],
)
def test_a_row_says_when_its_parts_were_written(times: list[str], words: str) -> None:
    parts = [shard(i, 2, written_at=f"{t}+00:00") for i, t in enumerate(times, 1)]
    assert [row["written"] for row in provenance_rows(parts)] == [words]


def test_several_devices_are_told_apart() -> None:
    parts = [shard(1, 4), shard(2, 4, "GPU-1"), shard(3, 4), shard(4, 4, "GPU-3")]
    assert [row["devices"] for row in provenance_rows(parts)] == ["1 to 3"]
    assert [row["devices"] for row in provenance_rows(parts[:1])] == ["1"]


ORIGINS = st.tuples(st.sampled_from("AB"), st.integers(1, 9), st.sampled_from("xyz"))


@given(st.lists(ORIGINS, unique=True, min_size=1))
def test_no_part_is_lost(origins: list[tuple[str, int, str]]) -> None:
    shards = [shard(part, 9, device, kernel_digest=digest) for digest, part, device in origins]
    numbers = device_numbers(shards)
    told = {
        row["digest"]: (int(row["shards"]), set(expand(row["devices"])))
        for row in provenance_rows(shards)
    }
    for digest in {d for d, _, _ in origins}:
        own = [device for d, _, device in origins if d == digest]
        assert told[digest] == (len(own), {numbers.get(device, 1) for device in own})


def expand(runs: str) -> list[int]:
    found: list[int] = []
    for run in runs.split(", "):
        first, _, last = run.partition(" to ")
        found += range(int(first), int(last or first) + 1)
    return found


def test_a_devices_own_figures_are_told_in_words_with_their_units() -> None:
    known = {"low": 0.0, "high": 0.0, "how": "By a sweep."}
    facts = [
        {"name": "issue_s", "value": 1.27e-10, "unit": "s", **known},
        {"name": "bus_copy_bps", "value": 4.25e12, "unit": "bytes/s", **known},
        {"name": "turn_8", "value": 0.07, "unit": "1", **known},
    ]
    missing = {"latency_l2_s": "There is no chain."}
    (table,) = machine_tables([{"device": "A GPU", "facts": facts, "missing": missing}])
    assert [row["value"] for row in table["rows"]] == ["0.127 ns", "4250 GB/s", "7.0 %"]
    assert table["missing"] == ["a load from the cache: There is no chain."]
    # Every figure that the analysis may give or miss has words.
    _, all_missing = machine_facts(pd.DataFrame(columns=sorted(COLUMNS), dtype=object))
    (empty,) = machine_tables([{"device": "A GPU", "facts": [], "missing": all_missing}])
    assert len(empty["missing"]) == len(all_missing)
