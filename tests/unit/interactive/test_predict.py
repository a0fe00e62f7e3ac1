"""What the model says of a launch with no device at hand, and of what it says nothing."""

import json
import re
from collections.abc import Mapping
from typing import Any

import gpushmoo
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, record
from described import FACTS, described, measured
from gpushmoo.core.space import TYPICAL, expand_axis
from gpushmoo.interactive.predict import KNOWN
from gpushmoo.interactive.shell import main
from gpushmoo.model.fit import Bands, fit_device, measured_bands
from gpushmoo.model.fit_stage import DEVICE_MODEL_SCHEMA
from gpushmoo.model.form import FIRST, first_values
from gpushmoo.model.launches import MULTIPROCESSORS, resident_blocks
from gpushmoo.workloads.loader import load_kernel

COPY = ROOT / "kernels/copy2d_coalesced"
BLOCK = {"block_x": 32, "block_y": 8}
HELD = {"to_resident": 2, "points": 4}


@pytest.mark.parametrize("kernel", ["block_eq_partition/float", "tex2d_sum/float"])
def test_occupancy_is_what_the_driver_said(kernel: str) -> None:
    columns = ["threads_per_block", "registers", "resident_blocks", "status"]
    files = sorted(record(f"nvidia-h200/{kernel}").rglob("*.parquet"))
    told = pd.concat([pq.read_table(f, columns=columns).to_pandas() for f in files])
    told = told[told["status"] == "ok"].drop_duplicates()
    own = [
        resident_blocks("sm_90", int(t), int(r), 0)
        for t, r in zip(told["threads_per_block"], told["registers"], strict=True)
    ]
    assert len(told) > 0
    assert own == told["resident_blocks"].to_list()


def test_shared_memory_and_registers_limit_how_many_blocks_fit() -> None:
    assert resident_blocks("sm_90", 256, 32, 100 * 1024) == 2
    assert resident_blocks("sm_90", 1024, 64, 0) == 1
    assert resident_blocks("sm_90", 4096, 32, 0) == 0
    for arch, multiprocessor in MULTIPROCESSORS.items():
        assert resident_blocks(arch, 32, 16, 0) == multiprocessor.blocks


@pytest.mark.parametrize(("block_x", "block_y"), [(32, 8), (16, 16)])
def test_cells_in_the_band(block_x: int, block_y: int, capsys: pytest.CaptureFixture[str]) -> None:
    said = gpushmoo.predict(COPY, dtype="float", size=8192, block_x=block_x, block_y=block_y)
    files = record("nvidia-h200/copy2d_coalesced/float").glob("*.parquet")
    where = [("block_x", "=", block_x), ("block_y", "=", block_y), ("width", "=", 8192)]
    where += [("cache_state", "=", "warm")]
    told = pd.concat([pq.read_table(f, filters=where).to_pandas() for f in files])
    assert said.low_s is not None
    assert said.high_s is not None
    assert said.low_s <= np.exp(np.log(told["median_s"]).mean()) <= said.high_s
    assert said.gbs == pytest.approx(2 * 4 * 8192**2 / said.seconds * 1e-9)
    assert said.known_kernel
    assert said.shares[said.limit] == 1.0 == max(said.shares.values())
    words = f"predict {COPY} --dtype float --size 8192 --axes block_x={block_x} block_y={block_y}"
    assert main([*words.split(), "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert (row["predicted_s"], row["limit"]) == (said.seconds, said.limit)
    only_measured = {"cell_key", "timing_mode", "trained", "measured_s", "measured_gbs"}
    assert set(DEVICE_MODEL_SCHEMA.names) - set(row) == only_measured
    assert main(words.split()) == 0
    assert f"limited by {said.limit}" in capsys.readouterr().out


def test_unfitted_kernels_have_the_wide_band_or_are_refused() -> None:
    params = {"TILE": 32, "ROWS": 4, "PAD": 1, "block_x": 32}
    said = gpushmoo.predict(
        ROOT / "kernels/transpose", dtype="float", size=8192, variant="tile", **params
    )
    told = json.loads(KNOWN.read_text(encoding="utf-8"))["devices"][0]
    assert not said.known_kernel
    assert said.high_s is not None
    assert np.log(said.high_s / said.seconds) == pytest.approx(told["bands"]["of_others"])
    axes = load_kernel(ROOT / "kernels/stream").workload.axes
    params = {name: expand_axis(spec, TYPICAL)[0] for name, spec in axes.items()}
    with pytest.raises(gpushmoo.ConfigError, match="elements that a thread accesses"):
        gpushmoo.predict(ROOT / "kernels/stream", dtype="float", size=2**20, **params)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"dtype": "int", "size": 64, **BLOCK}, "dtype: 'int' is not one of float, double"),
        ({"dtype": "float", "size": 64, "block_x": 8}, "block_x, block_y; name each"),
        (
            {"dtype": "float", "size": 64, "cache": "hot", **BLOCK},
            "'hot' is not one of warm, flushed",
        ),
        (
            {"dtype": "float", "size": 64, "variant": "fast", **BLOCK},
            "variant: 'fast' is not one of",
        ),
        (
            {"dtype": "float", "size": 64, "model": "nowhere.json", **BLOCK},
            "is not the model/device.json",
        ),
        ({"dtype": "float", "size": 64, "model": __file__, **BLOCK}, "of a run; pass such a file"),
        ({"dtype": "float", "size": 64, "block_x": 64, "block_y": 64}, "No block of 4096 threads"),
        ({"dtype": "float", "size": 64, "block_x": 64, "block_y": 0}, "such launch: .*ZeroDiv"),
        ({"dtype": "float", "size": 64, "block_x": 8, "axes": {"block_y": HELD}}, "name numbers"),
    ],
)
def test_what_cannot_be_predicted_is_named(arguments: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(gpushmoo.ConfigError, match=sentence):
        gpushmoo.predict(COPY, **arguments)


def single_calls(frame: pd.DataFrame, axes: list[str], kernel: str, **asked: Any) -> pd.DataFrame:
    """The rows that calls of one launch each have, in the frame's order."""
    at = [{name: int(row[name]) for name in axes} for row in frame.to_dict("records")]
    rows = [gpushmoo.predict(ROOT / "kernels" / kernel, **asked, **params).row for params in at]
    return pd.concat(rows, ignore_index=True)


def test_a_frame_says_what_calls_of_one_launch_say(capsys: pytest.CaptureFixture[str]) -> None:
    axes = {"block_x": {"from": 40, "to": 1000, "step": 96}, "block_y": [1, 2, 5, 64]}
    asked = {"dtype": "float3", "size": (1000, 1001), "cache": "flushed"}
    frame = gpushmoo.predict(COPY, **asked, axes=axes)
    assert len(frame) == 11 * 4
    works = frame[frame["message"].isna()]
    assert 0 < len(works) < len(frame)
    assert works["predicted_s"].is_monotonic_increasing
    singles = single_calls(works, [*axes], COPY.name, **asked)
    pd.testing.assert_frame_equal(works, singles, check_exact=True)
    refused = frame[len(works) :]
    assert refused["predicted_s"].isna().all()
    assert set(refused["message"].str.slice(0, 12)) == {"No block of "}
    words = f"predict {COPY} --dtype float3 --size 1000x1001 --cache flushed"
    words += " --axes block_x=40:1000:96 block_y=1,2,5,64"
    assert main([*words.split(), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["predicted_s"] for row in rows[: len(works)]] == works["predicted_s"].to_list()
    assert main(words.split()) == 0
    said = capsys.readouterr().out
    best = works.iloc[0]
    assert re.search(rf"(?m)^{best['block_x']} +{best['block_y']} +\d.* {best['limit']}$", said)
    assert f"{len(refused)} cannot be, the first since: No block of" in said


def test_of_several_versions_each_has_its_own_code() -> None:
    axes = {"TILE": [16, 32], "ROWS": [1, 4], "PAD": [0, 1]}
    asked = {"dtype": "double", "size": 2048, "variant": "tile"}
    frame = gpushmoo.predict(ROOT / "kernels/transpose", **asked, axes=axes, block_x=32)
    works = frame[frame["message"].isna()]
    assert set(works["TILE"]) == {32}
    singles = single_calls(works, [*axes, "block_x"], "transpose", **asked)
    pd.testing.assert_frame_equal(works, singles, check_exact=True)
    assert set(frame["message"].dropna()) == {
        "There is no such launch: ROWS and block_x must divide TILE."
    }


def test_micro_benchmarks_replace_first_values() -> None:
    facts = {"dispatch_s": 1e-7, "bus_read_bps": 1.98e12, "latency_l2_s": 1e-7}
    facts |= {"latency_dram_s": 3e-7, "store_port_bytes_per_s": 1.98e9 * 64, "turn_1": 0.2}
    values = first_values(facts, FACTS)
    assert values["dispatch"] == pytest.approx(198)
    assert values["dram_rate"] == pytest.approx(1000)
    assert values["l2_latency"] == pytest.approx(198)
    assert values["dram_latency"] == pytest.approx(396)
    assert values["store_line"] == pytest.approx(2)
    assert values["turn_round"] == 0.2
    assert values["queue"] == FIRST["queue"]


@pytest.mark.slow
def test_bands_are_of_a_kernel_or_of_others() -> None:
    cells = measured(described(), FIRST, noise=0.03, seed=7)
    chosen = np.arange(len(cells)) % 3 == 0
    fit = fit_device(cells, chosen)
    bands = measured_bands(cells, chosen, fit)
    off = np.abs(np.log(fit.seconds(cells) / cells["measured_s"]))
    half = cells["kernel"].map(bands.half_width).astype(float)
    assert 0.85 <= (off <= half)[~chosen].mean() <= 0.95
    own = cells["kernel"] == cells["kernel"].iloc[0]
    odd = cells.assign(measured_s=cells["measured_s"].where(~own, 2 * cells["measured_s"]))
    wide = measured_bands(odd, chosen, fit).of_kernel
    assert wide.pop(cells["kernel"].iloc[0]) > 3 * max(wide.values())
    assert bands.of_others is not None
    assert bands.half_width("another") == bands.of_others
    assert Bands({"copy": 0.1}, None).half_width("another") is None
    assert set(json.loads(KNOWN.read_text())["devices"][0]["parameters"]) == set(FIRST)
