"""The report's part on the model of the device: rows, how good it is, what it lacks."""

from __future__ import annotations

from typing import Any

import pytest
from gpushmoo.model.limits import LEVERS, CountedCells
from gpushmoo.report.tables import Namer
from gpushmoo.report.why import LIMIT_WORDS, parameter_tables, why_parts

NAMES = Namer([{"device_name": "H", "cache_state": "warm", "launch_kind": "back_to_back"}])


def why(**changes: Any) -> dict[str, Any]:
    told = {
        "kernel": "copy",
        "dtype": "float",
        "variant": "plain",
        "cache_state": "warm",
        "launch_kind": "back_to_back",
        "cell_key": "a",
        "height": 64,
        "width": 64,
        "params": {"block_y": 4, "block_x": 32},
        "measured_gbs": 4000.0,
        "predicted_gbs": 3900.0,
        "low_gbs": 3700.0,
        "high_gbs": 4100.0,
        "limit": "DRAM",
        "next": "waiting",
        "next_share": 0.74,
        "factor": 1.14,
        "then": None,
    }
    return told | changes


def device(**changes: Any) -> dict[str, Any]:
    parameter = {"value": 2300.0, "low": 2200.0, "high": 2400.0, "determined": True}
    told = {
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
    return told | changes


def test_a_row_says_what_binds_and_what_a_gain_takes() -> None:
    [part] = why_parts([device()], NAMES, {})
    [row] = part["rows"]
    assert row["launch"] == "block_x=32, block_y=4, plain"
    assert (row["measured"], row["predicted"], row["limit"]) == ("4000", "3900", "DRAM")
    assert row["next"] == "waiting for loads 74 %"
    assert row["gain"] == "a DRAM 1.14 times as fast"
    assert part["gaps"] == ["dot: not modelled, as its machine code was not read."]


def test_where_no_factor_gains_the_limit_in_the_way_is_named() -> None:
    [part] = why_parts([device(whys=[why(factor=None, then="L2")])], NAMES, {})
    assert part["rows"][0]["gain"] == "not by this limit alone: then L2 binds"


def test_limits_that_counters_back_are_told_from_those_that_they_do_not() -> None:
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
        "are not (told by “not”); the other 1 are inferred by the model."
    )


def test_waiting_and_dispatch_are_backed_where_no_unit_is_busy() -> None:
    idle = {"dram": 50.0, "l2": 50.0, "l1": 20.0, "sm": 30.0, "room_for_warps": 64.0}
    cells = {
        "full": idle | {"active_warps": 60.0},
        "empty": idle | {"active_warps": 20.0},
        "bound": idle | {"dram": 90.0, "l2": 95.0, "l1": 80.0, "sm": 80.0, "active_warps": 60.0},
    }
    counted = CountedCells.of(cells)

    def backed(cell: str, limit: str) -> bool:
        found = counted.of_limit(cell, limit)
        assert found is not None
        return found.backed

    assert backed("full", "waiting")
    assert not backed("empty", "waiting")
    assert backed("empty", "dispatch")
    assert not backed("full", "dispatch")
    assert not backed("bound", "waiting")
    assert backed("bound", "service")
    assert counted.of_limit("full", "start") is None
    assert counted.of_limit("unknown", "DRAM") is None


def test_limits_are_inferred_and_the_model_is_judged_by_what_it_was_not_fitted_to() -> None:
    [part] = why_parts([device()], NAMES, {})
    inferred, judged = part["sentences"]
    assert "inferred by the model" in inferred
    assert "copy 2.5 %, 11 %" in judged
    assert "a factor of 1.15 either way" in judged
    alone = device(bands={"of_kernel": {}, "of_others": None})
    assert "no band is known" in why_parts([alone], NAMES, {})[0]["sentences"][1]


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([], "neither the kernels' machine code nor how many blocks"),
        ([{"device": "H", "why": "3 cells are too few", "left_out": {}}], "H: 3 cells are too few"),
    ],
)
def test_without_a_model_one_sentence_says_what_is_lacking(
    devices: list[dict[str, Any]], words: str
) -> None:
    [part] = why_parts(devices, NAMES, {})
    [sentence] = part["sentences"]
    assert words in sentence
    assert part["rows"] == []
    assert parameter_tables(devices) == []


def test_parameters_that_are_not_determined_have_no_value() -> None:
    [table] = parameter_tables([device()])
    assert [r["words"] for r in table["rows"]] == ["DRAM"]
    assert (table["rows"][0]["value"], table["rows"][0]["interval"]) == ("2300", "2200 to 2400")
    assert table["others"] == "queueing"


def test_every_limit_has_words() -> None:
    assert set(LIMIT_WORDS) == set(LEVERS)
