"""Sentences and rows of the report: provenance, devices, clocks, the model of the device."""

from typing import Any

import pandas as pd
import pytest
from gpushmoo.analysis.run_quality import clocks_seen
from gpushmoo.model.limits import LEVERS, CountedCells
from gpushmoo.model.machine import COLUMNS, machine_facts
from gpushmoo.report.findings import LIMIT_WORDS, parameter_tables, why_parts
from gpushmoo.report.method import (
    clock_warning,
    device_card,
    device_numbers,
    locked_clause,
    machine_tables,
    only_cpus,
    provenance_rows,
    seed_words,
    stopping_words,
)
from gpushmoo.report.tables import Namer


def shard(device: str = "GPU-0", **changes: Any) -> dict[str, Any]:
    """Provenance of a shard; `changes` of its own values or of its parameters."""
    params = {"folder": "kernels/k", "dtype": "float", "repeat": 1, "measure": {}, "seed": 1}
    own = {
        "kernel_digest": "d",
        "written_at": "2026-11-21T12:30:47+00:00",
        "device": {"uuid": device, "name": "H200"},
    }
    for name, value in changes.items():
        (params if name in params else own)[name] = value
    return {**own, "params": params}


def test_rows_share_code_and_number_devices() -> None:
    [row] = provenance_rows([shard(), shard(), shard(dtype="double")])
    assert [row[n] for n in ("kernel", "types", "shards", "digest")] == [
        "k",
        "float, double",
        "3",
        "d",
    ]
    for other in ({"kernel_digest": "e"}, {"folder": "kernels/other"}):
        assert [r["shards"] for r in provenance_rows([shard(), shard(**other)])] == ["1", "1"]
    parts = [shard(f"GPU-{n}") for n in (0, 1, 2, 5, 2)]
    assert [row["devices"] for row in provenance_rows(parts)] == ["1 to 4"]
    assert [row["devices"] for row in provenance_rows(parts[:1])] == ["1"]
    apart = [*parts, shard("GPU-0", kernel_digest="e"), shard("GPU-2", kernel_digest="e")]
    assert [row["devices"] for row in provenance_rows(apart)] == ["1 to 4", "1, 3"]


def device_of(name: str, uuid: str, driver: str) -> dict[str, Any]:
    facts = {"name": name, "uuid": uuid, "kind": "gpu", "backend": "cuda", "driver": driver}
    numbers = {"multiprocessors": 4, "core_clock_mhz": 0, "global_memory": 2**30, "cache": 0}
    host = {"cores": 2, "system": "Linux", "python": "3.11"}
    device = {**facts, **numbers, "runtime": "R", "max_threads_per_block": 64, "extra": {}}
    return {"device": device, "host": host}


def test_devices_of_other_names_have_their_own_cards() -> None:
    devices = [("A", "1", "5"), ("B", "2", "5"), ("A", "3", "6"), ("A", "1", "5")]
    shards = [device_of(*d) for d in devices]
    # A card for each name: the second device of the first name comes before the other name's.
    assert device_numbers(shards) == {"1": 1, "3": 2, "2": 3}
    assert device_numbers(shards[:1]) == {}
    card = device_card(shards)
    found = [value for label, value in card if label in ("Device", "Runtime", "Identity")]
    assert found == [
        "2 × A (GPU, backend cuda)",
        "R, driver 5; R, driver 6",
        "1: 1; 2: 3",
        "B (GPU, backend cuda)",
        "R, driver 5",
        "3: 2",
    ]


def test_each_host_of_a_data_set_is_on_the_card() -> None:
    shards = [device_of("A", "1", "5") for _ in range(3)]
    shards[1]["host"] = {**shards[1]["host"], "cores": 64}
    hosts = [value for label, value in device_card(shards) if label == "Host"]
    assert [host.split(" cores")[0] for host in hosts] == ["2", "64"]


def test_each_setting_of_a_data_set_is_said_of_its_kernels() -> None:
    one = {"min_samples": 7, "max_samples": 31, "relative_half_width": 0.002, "repeats": 2}
    other = {**one, "max_samples": 15, "relative_half_width": 0.01, "repeats": 3}
    of_one, of_other = shard(measure=one, seed=8), shard(folder="dots/d", measure=other, seed=9)
    assert stopping_words([of_one, of_one]).startswith("A cell stops after 7 samples")
    said = stopping_words([of_other, of_one])
    assert "A cell of k stops after 7 samples" in said
    assert "0.20 % of its median, and after 31" in said
    assert "A cell of d stops after 7 samples" in said
    assert "1.0 % of its median, and after 15" in said
    assert said.count("no more than the 7") == 1  # of three repeats
    assert seed_words([of_one, of_one]) == "seed 8"
    assert seed_words([of_other, of_one]) == "seeds 8 and 9"


def test_a_data_set_with_a_gpu_in_it_is_not_of_a_cpu() -> None:
    cpu, gpu = {"device": {"kind": "cpu"}}, {"device": {"kind": "gpu"}}
    assert only_cpus([cpu, cpu])
    assert not only_cpus([cpu, gpu])


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


def clocked(*clocks: int, memory: int = 3201, reasons: tuple[str, ...] = (), **other: Any) -> Any:
    """A shard's provenance with a reading of each core clock."""
    readings = [
        {"at_s": 0.0, "sm_clock_mhz": c, "memory_clock_mhz": memory, "reasons": list(reasons)}
        for c in clocks
    ]
    return {"device": {"name": "H"}, "clocks_seen": clocks_seen(readings)} | other


LOCKED = {"asked": 1500, "locked": True, "core": 1500, "memory_mhz": 3201, "why": None}
REFUSED = {**LOCKED, "locked": False, "core": None, "why": "it may not"}


def test_clocks_that_moved_or_were_locked_are_told() -> None:
    found = clock_warning([clocked(1980, 1980), clocked(1410)])
    assert found.startswith(
        "The clocks of H were not locked and moved: its core ran at 1,410 to 1,980 MHz (29 % "
        "apart) in 3 readings. "
    )
    assert "lock_clocks: base" in found
    held = [clocked(1500, reasons=("sw_power_cap",)), clocked(1980, memory=1600)]
    found = clock_warning(held)
    assert "and its memory ran at 1,600 to 3,201 MHz (50 % apart)" in found
    assert "held down by the board's power limit in 50 % of them" in found
    assert locked_clause([clocked(1980)]) == []
    assert locked_clause([clocked(clocks=LOCKED)]) == ["The core's clocks were locked at 1500 MHz."]
    base = {**LOCKED, "core": "base"}
    assert locked_clause([clocked(clocks=base), clocked(clocks=REFUSED)]) == [
        "The core's clocks were locked at their base for 1 of 2 shards.",
        "The clocks were not locked as asked: it may not.",
    ]


@pytest.mark.parametrize(
    ("shards", "warns"),
    [
        ([clocked(1980, 1965), clocked(210, reasons=("gpu_idle",))], False),
        # At most a hundredth apart.
        ([clocked(1000, 990)], False),
        ([clocked(1000, 989)], True),
        ([clocked(), clocked()], False),
        ([clocked(1400, 1980, clocks=LOCKED)], False),
        ([clocked(1400, 1980, clocks=REFUSED)], True),
        # Devices of different names.
        ([clocked(1980), clocked(1000) | {"device": {"name": "other"}}], False),
    ],
)
def test_of_steady_or_locked_clocks_nothing_is_said(shards: list[Any], warns: bool) -> None:
    assert (clock_warning(shards) != "") == warns


PLACE = {"device_name": "H", "cache_state": "warm", "timing_mode": "batched"}
NAMES = Namer(pd.DataFrame([PLACE]))


def why(**changes: Any) -> dict[str, Any]:
    own = {
        "kernel": "copy",
        "dtype": "float",
        "variant": "plain",
        "cell_key": "a",
        "cache_state": "warm",
        "timing_mode": "batched",
        "height": 64,
        "width": 64,
        "params": {"block_y": 4, "block_x": 32},
        "measured_gbs": 4000.0,
        "predicted_gbs": 3900.0,
        "limit": "DRAM",
        "next": "waiting",
        "next_share": 0.74,
        "factor": 1.14,
        "then": None,
    }
    return own | changes


def device(**changes: Any) -> dict[str, Any]:
    parameter = {"value": 2300.0, "low": 2200.0, "high": 2400.0, "determined": True}
    own = {
        "device": "H",
        "cells": 100,
        "trained": 40,
        "errors": {"copy": {"cells": 60, "median": 0.025, "p95": 0.11}},
        "bands": {"of_kernel": {"copy": 0.08}, "of_others": 0.14},
        "left_out": {"dot": "its machine code was not read"},
        "parameters": {
            "queue": parameter | {"unit": "1", "words": "queueing", "determined": False},
            "dram_rate": parameter | {"unit": "bytes/cycle", "words": "DRAM"},
        },
        "whys": [why()],
    }
    return own | changes


def test_rows_and_tables_say_what_binds() -> None:
    [part] = why_parts([device(whys=[why(), why(factor=None, then="L2")])], NAMES, {})
    row, hindered = part["rows"]
    assert row["launch"] == "block_x=32, block_y=4, plain"
    assert (row["measured"], row["predicted"], row["limit"]) == ("4000", "3900", "DRAM")
    assert row["next"] == "waiting for loads 74 %"
    assert row["gain"] == "a DRAM 1.14 times as fast"
    assert hindered["gain"] == "not by this limit alone: then L2 binds"
    assert part["gaps"] == ["dot: not modelled, as its machine code was not read."]
    assert set(LIMIT_WORDS) == set(LEVERS)
    busy = {"dram": 88.0, "l2": 60.0, "l1": 20.0, "sm": 30.0}
    warps = {"active_warps": 50.0, "room_for_warps": 64.0}
    cells = {"a": busy | warps, "b": busy | {"dram": 40.0, "l2": 95.0} | warps}
    counted = {"H": CountedCells.of(cells)}
    whys = [why(), why(cell_key="b"), why(cell_key="c")]
    [part] = why_parts([device(whys=whys)], NAMES, counted)
    told = [row["counted"] for row in part["rows"]]
    assert told == ["88 % busy", "not: 40 % busy", "inferred"]
    assert part["sentences"][0] == (
        "Of 2 limits 1 are backed by hardware counters of the same launches on such a device, 1 "
        "are not (marked “not”); the other 1 are inferred by the model."
    )
    [table] = parameter_tables([device()])
    assert [r["words"] for r in table["rows"]] == ["DRAM"]
    assert (table["rows"][0]["value"], table["rows"][0]["interval"]) == ("2300", "2200 to 2400")
    assert table["others"] == "queueing"


@pytest.mark.parametrize(
    ("cell", "limit", "backed"),
    [
        ("full", "waiting", True),
        ("empty", "waiting", False),
        ("empty", "dispatch", True),
        ("full", "dispatch", False),
        ("bound", "waiting", False),
        ("bound", "service", True),
        ("full", "start", None),
        ("unknown", "DRAM", None),
    ],
)
def test_limits_without_a_busy_unit(cell: str, limit: str, backed: bool | None) -> None:
    idle = {"dram": 50.0, "l2": 50.0, "l1": 20.0, "sm": 30.0, "room_for_warps": 64.0}
    cells = {
        "full": idle | {"active_warps": 60.0},
        "empty": idle | {"active_warps": 20.0},
        "bound": idle | {"dram": 90.0, "l2": 95.0, "l1": 80.0, "sm": 80.0, "active_warps": 60.0},
    }
    found = CountedCells.of(cells).of_limit(cell, limit)
    assert (None if found is None else found.backed) == backed
    if cell == "empty" and found is not None:
        assert found.words == "no unit busy, 31 % of warp slots used"


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([], "neither the kernels' machine code nor how many blocks"),
        ([{"device": "H", "why": "3 cells are too few", "left_out": {}}], "H: 3 cells are too few"),
    ],
)
def test_without_a_model_a_sentence_says_why(devices: list[dict[str, Any]], words: str) -> None:
    [part] = why_parts(devices, NAMES, {})
    [sentence] = part["sentences"]
    assert words in sentence
    assert part["rows"] == parameter_tables(devices) == []
