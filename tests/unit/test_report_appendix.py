"""The closing tables: rows that say the same are one, and nothing is lost by it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest
from gpushmoo.core.schema import Status
from gpushmoo.report.appendix import (
    NAMED_VARIANTS,
    device_numbers,
    machine_code_rows,
    merged_variants,
    provenance_rows,
    status_rows,
)
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


def shown(*shards: dict[str, Any]) -> list[str]:
    return [row["shard"] for row in provenance_rows(shards)]


# Variants


def test_all_of_many_variants_are_counted_and_some_are_named() -> None:
    names = list("abcdef")
    key = ("k", "float", "1")
    assert merged_variants((key, n) for n in names) == [(key, "all 6 variants")]
    other = ("k", "float", "2")
    found = [(other if n == "c" else key, n) for n in names]
    assert merged_variants(found) == [(key, "a, b, d, e, f"), (other, "c")]


KEYS = st.tuples(st.sampled_from("kl"), st.sampled_from(["float", "double"]), st.sampled_from("12"))


@given(st.lists(st.tuples(KEYS, st.sampled_from("abcdefg"))))
def test_no_variant_is_lost(found: list[tuple[tuple[str, ...], str]]) -> None:
    every = {key[:2]: {v for k, v in found if k[:2] == key[:2]} for key, _ in found}
    again = []
    for key, words in merged_variants(found):
        if words.startswith("all "):
            assert words == f"all {len(every[key[:2]])} variants"
            assert len(every[key[:2]]) > NAMED_VARIANTS
            again += [(key, v) for v in every[key[:2]]]
        else:
            again += [(key, v) for v in words.split(", ")]
    assert sorted(again) == sorted(set(found))


# Statuses


def test_variants_of_equal_counts_share_a_row_and_others_do_not() -> None:
    def cells(variant: str, *statuses: Status) -> list[dict[str, str]]:
        where = {"kernel": "k", "dtype": "float", "variant": variant}
        return [{**where, "status": s.value} for s in statuses]

    ok, timeout = Status.OK, Status.TIMEOUT
    rows = [cell for v in "abcd" for cell in cells(v, ok, ok)] + cells("slow", ok, timeout)
    table = status_rows(pd.DataFrame(rows))
    assert table["header"] == ["kernel", "type", "variants", "ok", "timeout"]
    assert table["body"] == [
        ["k", "float", "a, b, c, d", "2", "0"],
        ["k", "float", "slow", "1", "1"],
    ]
    assert status_rows(pd.DataFrame(rows[:-2]))["body"] == [["k", "float", "all 4 variants", "2"]]


# Provenance


@pytest.mark.parametrize(
    ("builds", "words"),
    [
        ({}, "no build"),
        ({"plain": "-DA=1 -DB=2"}, "plain: -DA=1 -DB=2"),
        ({"x": "-DA=1", "y": "-DA=1"}, "all: -DA=1"),
        ({"y": "-DA=1 -DB=3", "x": "-DA=1 -DB=2"}, "all: -DA=1; x: -DB=2; y: -DB=3"),
        ({"x": "-DA=1", "y": "-DA=2"}, "x: -DA=1; y: -DA=2"),
    ],
)
def test_options_of_all_variants_are_said_once(builds: dict[str, str], words: str) -> None:
    assert provenance_rows([shard(builds=builds)])[0]["builds"] == words


SHIFTS = range(9, 14)


@pytest.mark.parametrize(
    ("shards", "words"),
    [
        ([shard(1, 8)], "4096², part 1 of 8"),
        ([shard(2, 8), shard(1, 8)], "4096², parts 1 to 2 of 8"),
        ([shard(p, 8) for p in (1, 3, 4, 5, 8)], "4096², parts 1, 3 to 5, 8 of 8"),
        ([shard(sizes=[[16384, 16384]])], "16384², part 1 of 1"),
        ([shard(sizes=[[512, 512], [512, 1024]])], "512², 512 × 1024, part 1 of 1"),
        (
            [shard(sizes=[[2**i] * 2 for i in range(9, 14)])],
            "5 sizes from 512² to 8192², part 1 of 1",
        ),
    ],
)
def test_a_sweep_is_known_by_its_sizes_and_parts_that_were_built_alike_share_a_row(
    shards: list[dict[str, Any]], words: str
) -> None:
    assert shown(*shards) == [f"k, float, {words}"]


@pytest.mark.parametrize(
    "other",
    [
        {"builds": {"plain": "-DA=2"}},
        {"builds": {}},
        {"kernel_digest": "e"},
        {"dtype": "double"},
        {"folder": "kernels/other"},
    ],
)
def test_parts_that_were_built_differently_stand_apart(other: dict[str, Any]) -> None:
    rows = provenance_rows([shard(1, 2), shard(2, 2, **other)])
    assert [r["shard"].split(", ")[-1] for r in rows] == ["part 1 of 2", "part 2 of 2"]


@pytest.mark.parametrize(
    "other", [{"sizes": [[16384, 16384]]}, {"variants": ["x"]}, {"axes": {}}, {"count": 4}]
)
def test_two_sweeps_of_a_kernel_stand_apart(other: dict[str, Any]) -> None:
    assert len(shown(shard(1, 2), shard(2, 2), shard(1, **{"count": 2} | other))) == 2


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
    parts = [shard(1, 4), shard(2, 4, "GPU-1"), shard(3, 4), shard(4, 4), shard(dtype="double")]
    assert shown(*parts) == [
        "k, float, 4096², parts 1, 3 to 4 of 4, device 1; part 2 of 4, device 2",
        "k, double, 4096², part 1 of 1, device 1",
    ]


ORIGINS = st.tuples(st.sampled_from("AB"), st.integers(1, 9), st.sampled_from("xyz"))


@given(st.lists(ORIGINS, unique=True, min_size=1))
def test_no_part_is_lost(origins: list[tuple[str, int, str]]) -> None:
    shards = [shard(part, 9, device, kernel_digest=digest) for digest, part, device in origins]
    numbers = device_numbers(shards)
    again = []
    for row in provenance_rows(shards):
        for words in row["shard"].removeprefix("k, float, 4096², ").split("; "):
            found = re.fullmatch(r"parts? (.*) of 9(?:, device (\d))?", words)
            assert found is not None
            device = int(found[2] or 0)
            again += [(row["digest"], part, device) for part in expand(found[1])]
    assert Counter(again) == Counter((d, p, numbers.get(u, 0)) for d, p, u in origins)


def expand(runs: str) -> list[int]:
    found: list[int] = []
    for run in runs.split(", "):
        first, _, last = run.partition(" to ")
        found += range(int(first), int(last or first) + 1)
    return found


# Machine code


def access(kind: str, count: int = 4, in_loop: int = 4, space: str = "global") -> dict[str, Any]:
    return {"count": count, "in_loop": in_loop, "kind": kind, "space": space, "width": 16}


def entry(name: str = "e", registers: int = 40, accesses: Sequence[Any] = ()) -> dict[str, Any]:
    spills = {"spill_loads": 1, "spill_stores": 2}
    return {"entry": name, "registers": registers, **spills, "accesses": list(accesses)}


def with_code(variants: dict[str, list[dict[str, Any]]], **changes: Any) -> dict[str, Any]:
    found = {v: {"entries": entries, "failure": None} for v, entries in variants.items()}
    return shard(machine_code={"arch": "sm_90", "variants": found}, **changes)


def code_rows(*shards: dict[str, Any]) -> list[tuple[str, ...]]:
    names = ("dtype", "entry", "registers", "variants")
    return [tuple(row[n] for n in names) for row in machine_code_rows(shards)]


def test_variants_of_equal_machine_code_share_a_row() -> None:
    alike = {v: [entry("e"), entry("f")] for v in "abcd"}
    assert code_rows(with_code(alike)) == [
        ("float", "e", "40", "all 4 variants"),
        ("float", "f", "40", "all 4 variants"),
    ]
    other = {**alike, "c": [entry("e"), entry("f", registers=41)]}
    assert code_rows(with_code(other)) == [
        ("float", "e", "40", "all 4 variants"),
        ("float", "f", "40", "a, b, d"),
        ("float", "f", "41", "c"),
    ]


def test_different_code_of_one_variant_is_shown_twice() -> None:
    """Two sweeps, built at different times; the parts of one are equal and shown once."""
    parts = [with_code({"a": [entry()]}), with_code({"a": [entry()]})]
    assert code_rows(*parts, with_code({"a": [entry(registers=41)]})) == [
        ("float", "e", "40", "a"),
        ("float", "e", "41", "a"),
    ]
    # So is equal code of two element types.
    shards = [with_code({"a": [entry()]}, dtype=dtype) for dtype in ("float", "double")]
    assert [row[0] for row in code_rows(*shards)] == ["double", "float"]


def test_variants_of_two_sweeps_are_all_only_together() -> None:
    first = with_code({v: [entry()] for v in "abcd"})
    second = with_code({"e": [entry(registers=41)]})
    assert code_rows(first) == [("float", "e", "40", "all 4 variants")]
    assert code_rows(first, second)[0] == ("float", "e", "40", "a, b, c, d")


@pytest.mark.parametrize(
    ("accesses", "words"),
    [
        ([access("load")], "4 × 16 B global load looped"),
        ([access("load"), access("store")], "4 × 16 B global load and store looped"),
        (
            [access("load", in_loop=1), access("store", in_loop=1)],
            "4 × 16 B global load and store, 1 looped",
        ),
        (
            [access("load", in_loop=0), access("store")],
            "4 × 16 B global load, 4 × 16 B global store looped",
        ),
        (
            [access("store"), access("load", space="texture")],
            "4 × 16 B global store looped, 4 × 16 B texture load looped",
        ),
    ],
)
def test_accesses_that_differ_only_in_kind_are_said_together(
    accesses: list[dict[str, Any]], words: str
) -> None:
    row = machine_code_rows([with_code({"a": [entry(accesses=accesses)]})])[0]
    assert (row["accesses"], row["spills"]) == (words, "3")


def test_shards_without_machine_code_have_no_rows() -> None:
    failed = shard(machine_code={"arch": None, "variants": None})
    assert machine_code_rows([shard(), failed]) == []
