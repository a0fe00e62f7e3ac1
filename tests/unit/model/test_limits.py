"""What would have to change for a launch to gain a tenth, and what counters said of it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from gpushmoo.core.errors import DamagedFileError
from gpushmoo.model.form import FIRST, LIMITS, PARAMETERS, Model
from gpushmoo.model.launches import COLUMNS, Launches
from gpushmoo.model.limits import (
    GAIN,
    LEVERS,
    MAX_FACTOR,
    factor_to_gain,
    fastest_cells,
    improved,
    read_counted,
    whys,
)
from gpushmoo.storage.wholefile import write_json

# A copy of far more than a cache holds, in blocks of enough warps that wait twice each.
COPY = {
    "multiprocessors": 100.0,
    "clock_hz": 1e9,
    "cache_bytes": 4e7,
    "blocks": 1e5,
    "warps": 8.0,
    "resident": 8.0,
    "in_a_sample": 10.0,
    "waits": 2.0,
    "instructions": 100.0,
    "turn_instructions": 20.0,
    "loads_a_wait": 4.0,
    "load_lines": 80.0,
    "store_lines": 80.0,
    "store_first_lines": 80.0,
    "access_bytes": 16.0,
    "bytes_read": 1e9,
    "bytes_written": 1e9,
}


def described(*changes: dict[str, float]) -> pd.DataFrame:
    return pd.DataFrame([dict.fromkeys(COLUMNS, 0.0) | COPY | change for change in changes])


def launch(**changes: float) -> Launches:
    return Launches.of(described(changes))


# Each makes another limit the largest by far.
BOUND = {
    "start": {"blocks": 1.0, "in_a_sample": 1.0, "bytes_read": 1e3, "bytes_written": 1e3},
    "dispatch": {
        "blocks": 1e7,
        "resident": 32.0,
        "warps": 1.0,
        "waits": 0.0,
        "load_lines": 1.0,
        "store_lines": 1.0,
        "store_first_lines": 1.0,
    },
    "service": {"instructions": 1e5},
    "waiting": {"waits": 300.0, "bytes_read": 1e8, "bytes_written": 1e8},
    "DRAM": {},
}


@pytest.mark.parametrize("limit", ["start", "dispatch", "service", "waiting", "DRAM"])
def test_the_factor_is_the_least_that_gains_a_tenth(limit: str) -> None:
    model, one = Model(FIRST), launch(**BOUND[limit])
    alone = model.limits(one)
    assert max(alone, key=lambda name: alone[name][0]) == limit
    factor = factor_to_gain(model, one, limit)
    assert factor is not None
    assert 1.0 < factor < MAX_FACTOR
    now = model.seconds(one)[0]
    assert improved(model, limit, factor).seconds(one)[0] == pytest.approx(now / GAIN, rel=1e-3)
    assert improved(model, limit, factor - 0.01).seconds(one)[0] > now / GAIN


def test_no_factor_gains_where_the_next_limit_is_near_and_levers_slow_nothing() -> None:
    alone = Model(FIRST).limits(launch())
    slower = 0.99 * alone["DRAM"][0] / alone["L2"][0]
    rates = {name: FIRST[name] / slower for name in LEVERS["L2"]}
    model = Model({**FIRST, **rates})
    assert model.limits(launch())["L2"][0] == pytest.approx(0.99 * alone["DRAM"][0])
    assert factor_to_gain(model, launch(), "DRAM") is None
    assert set(LEVERS) == set(LIMITS)
    assert {name for names in LEVERS.values() for name in names} <= set(PARAMETERS)
    every = Launches.of(described(*BOUND.values()))
    for limit in LIMITS:
        seconds = improved(Model(FIRST), limit, 2.0).seconds(every)
        assert (seconds <= Model(FIRST).seconds(every) * 1.000001).all()


@pytest.fixture
def predicted() -> pd.DataFrame:
    rows = [
        ("k", "float", "a", 8, "flushed", 9.0),
        ("k", "float", "a", 8, "warm", 5.0),
        ("k", "float", "b", 8, "warm", 6.0),
        ("k", "float", "control", 8, "warm", 7.0),
        ("k", "float", "a", 4, "warm", 8.0),
        ("k", "double", "a", 8, "flushed", 3.0),
    ]
    table = pd.DataFrame(
        rows, columns=["kernel", "dtype", "variant", "height", "cache_state", "gbs"]
    )
    return table.rename(columns={"gbs": "measured_gbs"}).assign(
        width=8,
        timing_mode="batched",
        device_name="d",
        cell_key=[f"key{n}" for n in range(len(rows))],
        measured_s=1 / table["gbs"],
        predicted_gbs=10.0,
        predicted_s=1.0,
        low_s=0.8,
        high_s=[1.25] * 5 + [np.nan],
    )


def test_a_why_is_of_the_fastest_cell_and_names_limits_and_launch(predicted: pd.DataFrame) -> None:
    found = fastest_cells(predicted, {"k": ["control"]})
    assert found["cell_key"].tolist() == ["key5", "key2"]
    points = pd.DataFrame({"block_x": range(6), "tile": [np.nan, 2, np.nan, 4, 5, 6]})
    cells = described(*({} for _ in range(6)))
    double, single = whys(Model(FIRST), cells, predicted, points, {"k": ["control"]})
    assert (single["limit"], single["then"], single["params"]) == ("DRAM", None, {"block_x": 2})
    alone = Model(FIRST).limits(launch())
    assert single["next_share"] == pytest.approx(alone[single["next"]][0] / alone["DRAM"][0])
    assert (single["low_gbs"], single["high_gbs"]) == (8.0, 12.5)
    assert double["params"] == {"block_x": 5, "tile": 6}
    assert double["low_gbs"] is None


def test_files_of_one_device_are_read_together_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    busy = {"dram": 80.0, "l2": 50.0, "l1": 10.0, "sm": 10.0, "active_warps": 8.0}
    for name in ("a", "b"):
        cells = {name: busy | {"room_for_warps": 8.0}}
        write_json(tmp_path / f"{name}.json", {"device": "D", "cells": cells})
    write_json(tmp_path / "none.json", {"device": None, "cells": {}})
    [(device, counted)] = read_counted([tmp_path / f"{n}.json" for n in ("a", "b", "none")]).items()
    assert (device, set(counted.cells), counted.most["dram"]) == ("D", {"a", "b"}, 80.0)
    (tmp_path / "a.json").write_text("{", encoding="utf-8")
    with pytest.raises(DamagedFileError):
        read_counted([tmp_path / "a.json"])
