"""A device's figures out of cells whose times were made of known figures."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cells import cell as row_of
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell, CellGroup, Residency
from gpushmoo.measuring.sample_length import launches_of_group
from gpushmoo.model.launches import OPEN_LINES
from gpushmoo.model.machine import half_way, line, machine_facts
from gpushmoo.planning.sweeps import SweepConfig
from test_config import cells_of, overlaid

UNITS, CACHE, RESIDENT_THREADS = 132, 60 * 2**20, 2048
KNOWN = {
    "latency_l2_s": 150e-9,
    "latency_dram_s": 340e-9,
    "launch_s": 0.9e-6,
    "sample_s": 4.8e-6,
    "dispatch_s": 78e-9,
    "warp_launch_s": 6.4e-9,
    "issue_s": 0.127e-9,
    "bus_read_bps": 4.7e12,
    "bus_write_bps": 4.4e12,
    "l2_read_bps": 7.4e12,
    "l2_write_bps": 4.7e12,
    "l2_copy_bps": 5.2e12,
    "load_port_bytes_per_s": 120e9,
    "store_port_bytes_per_s": 62e9,
    "open_sector_s": 3.3e-9,
    "turn_1": 0.14,
    "turn_2": 0.11,
    "turn_4": 0.09,
    "turn_8": 0.07,
    "cache_end_latency_share": 0.8,
    "cache_end_rate_share": 0.7,
}


@pytest.fixture(scope="module")
def cells() -> pd.DataFrame:
    """Those of config/machine.yaml on a device of the KNOWN figures, each off by a little."""
    sweeps = overlaid("machine.yaml").sweeps.values()
    return pd.DataFrame([row for sweep in sweeps for row in rows_of(sweep)])


def rows_of(sweep: SweepConfig) -> Iterable[Mapping[str, Any]]:
    """Rows of a sweep; with times of launches that share a sample as they would be measured."""
    groups: dict[CellGroup, list[Cell]] = defaultdict(list)
    for width in {1024, *sweep.axes.get("block_x", [])} if sweep.folder.name == "issue" else {0}:
        resident_blocks = RESIDENT_THREADS // max(width, 256)
        for cell in cells_of(sweep, Residency(UNITS, resident_blocks)):
            if cell["block_x"] == width if width else True:
                groups[cell.group].append(cell)
    rng = np.random.default_rng(7)
    for group in groups.values():
        alone = [net_seconds(cell, sweep) + KNOWN["launch_s"] + KNOWN["sample_s"] for cell in group]
        together = launches_of_group(min(alone), has_overhead=False)
        for cell in group:
            launch = sweep.folder.workload.launch(cell)
            counted = 1 if cell.cache_state == "flushed" else together
            start = KNOWN["launch_s"] + KNOWN["sample_s"] / counted
            seconds = (start + net_seconds(cell, sweep)) * rng.normal(1.0, 2e-4)
            read, written = sweep.folder.workload.bytes_moved(cell)
            names = ("kernel", "dtype", "cache_state", "timing_mode")
            place = {name: getattr(cell, name) for name in names}
            place |= {"height": cell.problem.height, "width": cell.problem.width}
            asked = {"blocks": launch.blocks, "tiles": launch.tiles, "multiprocessors": UNITS}
            asked |= {"threads_per_block": launch.threads, "launches_per_sample": together}
            asked |= {"resident_blocks": RESIDENT_THREADS // launch.threads}
            moved = {"bytes_read": read, "bytes_written": written}
            moved |= {"overhead_s": np.nan, "overhead_error_s": np.nan}
            moved |= {"working_set_over_cache": (read + written) / CACHE}
            yield row_of(seconds, 5e-4, **{**place, **asked, **moved}, **dict(cell.params))


def net_seconds(cell: Cell, sweep: SweepConfig) -> float:
    """What a launch takes beyond its start."""
    launch = sweep.folder.workload.launch(cell)
    read, written = sweep.folder.workload.bytes_moved(cell)
    resident_blocks = launch.blocks / UNITS
    if cell.kernel == "dispatch":
        warps = launch.threads // 32
        return resident_blocks * max(KNOWN["dispatch_s"], warps * KNOWN["warp_launch_s"])
    if cell.kernel == "issue":
        return launch.tiles / UNITS * KNOWN["issue_s"]
    span = cell.problem.width * cell.problem.height * DTYPES[cell.dtype].itemsize
    if cell.kernel == "chase":
        out = outside(span, "latency", cell)
        return cell["hops"] * (KNOWN["latency_l2_s"] * (1 - out) + KNOWN["latency_dram_s"] * out)
    out = outside(read + written, "rate", cell)
    if cell.kernel == "store_columns":
        lines = RESIDENT_THREADS // launch.threads * cell["block_x"]
        more = KNOWN["open_sector_s"] * np.log2(1 + lines / OPEN_LINES) * (cell["passes"] > 1)
        # Several threads of a narrower block's warp store to one line.
        more *= 1 + (cell["block_x"] < 32)
        return float(written / 32 / UNITS * (15e-9 + more * out))
    name = {"global_load": "read", "global_store": "write", "global_copy": "copy"}[cell.kernel]
    far = read / KNOWN["bus_read_bps"] + written / KNOWN["bus_write_bps"]
    if name == "copy":
        far *= 1 + KNOWN[f"turn_{cell['unroll']}"]
    # Some launches are better than others, the best as good as the device.
    worse = 1 + 0.01 * (cell["block_x"] > 512) + 0.02 * (cell["passes"] > 1)
    near = (read + written) / KNOWN[f"l2_{name}_bps"] * worse
    if name != "copy":
        port = KNOWN["load_port_bytes_per_s" if read else "store_port_bytes_per_s"]
        near = max(near, (read + written) / min(launch.blocks, UNITS) / port)
    # In rates, so that the middle is where the shape says.
    return 1 / ((1 - out) / near + out / (far * worse))


def outside(touched: int, kind: str, cell: Cell) -> float:
    """How much of what is touched is outside of the cache: a half where that ends."""
    if cell.cache_state == "flushed":
        return 1.0
    return 1 - 1 / (1 + (touched / CACHE / KNOWN[f"cache_end_{kind}_share"]) ** 24)


def test_all_figures_are_found_again_in_verified_cells(cells: pd.DataFrame) -> None:
    facts, missing = machine_facts(cells)
    found = {fact.name: fact for fact in facts}
    assert missing == {}
    for name, value in KNOWN.items():
        fact = found[name]
        assert fact.value == pytest.approx(value, rel=0.02), name
        assert fact.low <= fact.value <= fact.high
        assert fact.how.endswith(".")
    # The fastest copy is that of the largest unroll.
    apart = 1 / KNOWN["bus_read_bps"] + 1 / KNOWN["bus_write_bps"]
    copied = 2 / (apart * (1 + KNOWN["turn_8"]))
    assert found["bus_copy_bps"].value == pytest.approx(copied, rel=0.02)
    assert set(found) == {*KNOWN, "bus_copy_bps"}
    wrong = cells.assign(status="wrong_result", median_s=cells["median_s"] / 2)
    assert machine_facts(pd.concat([cells, wrong])) == machine_facts(cells)
    facts, missing = machine_facts(wrong)
    assert facts == ()
    assert set(missing) == {*KNOWN, "bus_copy_bps"}


@pytest.mark.parametrize(
    ("kernel", "absent"),
    [
        ("chase", {"latency_l2_s", "latency_dram_s", "cache_end_latency_share"}),
        ("issue", {"issue_s"}),
        ("store_columns", {"open_sector_s"}),
        ("global_copy", {"bus_copy_bps", "l2_copy_bps", "turn_1", "turn_2", "turn_4", "turn_8"}),
    ],
)
def test_a_missing_kernel_is_named(cells: pd.DataFrame, kernel: str, absent: set[str]) -> None:
    facts, missing = machine_facts(cells[cells["kernel"] != kernel])
    assert set(missing) == absent
    assert {fact.name for fact in facts} == {*KNOWN, "bus_copy_bps"} - absent
    assert set(missing.values()) == {f"There is no verified cell of the kernel '{kernel}'."}


def test_without_starts_or_a_cache_no_rate_is_told(cells: pd.DataFrame) -> None:
    facts, missing = machine_facts(cells[cells["kernel"] != "dispatch"])
    short = {name for name in KNOWN if name.startswith("l2_") or "port" in name}
    assert short <= set(missing)
    # A start is nothing beside a long launch.
    found = {fact.name: fact.value for fact in facts}
    for name in ("latency_dram_s", "bus_read_bps"):
        assert found[name] == pytest.approx(KNOWN[name], rel=0.02)
    facts, missing = machine_facts(cells.assign(working_set_over_cache=np.nan))
    found = {"launch_s", "sample_s", "dispatch_s", "warp_launch_s", "issue_s"}
    assert {fact.name for fact in facts} == found
    assert set(missing.values()) == {"The device does not report the size of its cache."}


@pytest.mark.parametrize(
    ("name", "asked", "sentence"),
    [
        ("latency_dram_s", "kernel != 'chase' or height * width < 6e7", "at least 4 caches"),
        ("sample_s", "kernel != 'dispatch' or width == 1", "two numbers of launches"),
        ("dispatch_s", "kernel != 'dispatch' or grid == 540672", "two grids"),
        ("warp_launch_s", "kernel != 'dispatch' or block_x == 1024", "no longer to start"),
        ("issue_s", "kernel != 'issue' or steps == 64", "two numbers of steps"),
        ("l2_read_bps", "kernel != 'global_load' or height > 1000", "at 3 sizes"),
        ("load_port_bytes_per_s", "kernel != 'global_load' or blocks > 16", "two lengths"),
        ("open_sector_s", "kernel != 'store_columns' or passes == 1", "several passes"),
        ("turn_2", "kernel != 'global_copy' or unroll != 2", "unroll 2"),
        ("cache_end_latency_share", "kernel != 'chase' or width > 6e6", "both a quarter"),
        ("cache_end_rate_share", "kernel != 'global_load' or height * width < 9e6", "from 4 on"),
    ],
)
def test_what_is_undetermined(cells: pd.DataFrame, name: str, asked: str, sentence: str) -> None:
    facts, missing = machine_facts(cells.query(asked))
    assert sentence in missing[name]
    assert name not in {fact.name for fact in facts}


def test_two_widths_of_empty_blocks_give_the_cost_of_a_warp(cells: pd.DataFrame) -> None:
    facts, missing = machine_facts(cells.query("kernel != 'dispatch' or block_x in (32, 1024)"))
    assert "warp_launch_s" not in missing
    found = {fact.name: fact.value for fact in facts}
    # The narrow block's own cost hides a part of the cost of its warps.
    assert 0.5 * KNOWN["warp_launch_s"] < found["warp_launch_s"] <= 1.02 * KNOWN["warp_launch_s"]


def test_a_warp_that_costs_nothing_has_no_figure(cells: pd.DataFrame) -> None:
    """As on a device where a block of 32 warps starts as fast as one of a single warp."""
    blocks = cells[cells["kernel"] == "dispatch"]
    narrow = blocks[blocks["block_x"] == blocks["block_x"].min()]
    names = ["median_s", "median_low_s", "median_high_s", "group_low_s", "group_high_s"]
    names = [name for name in names if name in cells]
    same = narrow.groupby(["grid", "launches_per_sample"])[names].first()
    level = blocks.drop(columns=names).join(same, on=["grid", "launches_per_sample"])
    facts, missing = machine_facts(pd.concat([cells[cells["kernel"] != "dispatch"], level]))
    assert "no longer to start" in missing["warp_launch_s"]
    assert "dispatch_s" in {fact.name for fact in facts}


def test_ports_are_those_of_warm_launches_within_the_cache(cells: pd.DataFrame) -> None:
    """Flushed launches, and those beyond the cache, wait for other things than a port."""
    ports = [name for name in KNOWN if "port" in name]
    before = {fact.name: fact.value for fact in machine_facts(cells)[0]}
    moves = cells["kernel"].isin(["global_load", "global_store"])
    far = moves & ((cells["cache_state"] == "flushed") | (cells["working_set_over_cache"] > 0.5))
    times = ["median_s", "median_low_s", "median_high_s"]
    slower = cells.copy()
    slower.loc[far, times] *= 3.0
    after = {fact.name: fact.value for fact in machine_facts(slower)[0]}
    assert {name: after[name] for name in ports} == {name: before[name] for name in ports}


def test_slopes_and_half_ways_have_intervals() -> None:
    found = line([1, 3], [10, 20], [9, 19], [11, 22])
    assert found is not None
    assert (found.slope, found.low, found.high) == pytest.approx((5, 4, 6.5))
    bent = line([0, 1, 2], [0, 2, 2], [0, 2, 2], [0, 2, 2])
    assert bent is not None
    error = 2 * np.sqrt((1 + 4 + 1) / 9 / 2)
    assert (bent.slope, bent.low, bent.high) == pytest.approx((1, 1 - error, 1 + error))
    assert line([2, 2], [1, 3], [1, 3], [1, 3]) is None
    assert half_way([1, 4, 16], [0, 0, 1], 0, 1) == pytest.approx((8, 4, 16))
    assert half_way([1, 4, 16], [6, 6, 2], 6, 2) == pytest.approx((8, 4, 16))
    several = half_way([1, 2, 4, 8, 16], [0, 1, 0, 1, 1], 0, 1)
    assert several is not None
    assert several[1:] == (1, 8)
    assert half_way([1, 2], [0, 0.4], 0, 1) is None
    assert half_way([1, 2], [0.6, 1], 0, 1) is None


def test_times_without_their_overhead_give_the_same_figures(cells: pd.DataFrame) -> None:
    warm = cells["cache_state"] == "warm"
    held = (KNOWN["sample_s"] / cells["launches_per_sample"]).where(warm, 0.0)
    times = ["median_s", "median_low_s", "median_high_s"]
    net = cells.assign(**{name: cells[name] - held for name in times})
    net["overhead_s"] = np.where(warm, KNOWN["sample_s"], np.nan)
    net["overhead_error_s"] = np.where(warm, 0.01 * KNOWN["sample_s"], np.nan)
    before, after = ({f.name: f for f in machine_facts(some)[0]} for some in (cells, net))
    assert after.keys() == before.keys()
    assert after["sample_s"].value == pytest.approx(KNOWN["sample_s"])
    assert after["sample_s"].low < KNOWN["sample_s"] < after["sample_s"].high
    for name, fact in before.items():
        assert after[name].value == pytest.approx(fact.value, rel=0.02), name
