"""The model of a device: what must hold of its form, and that a fit finds what it can."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import examples
from described import FACTS, SQUARES, cells, described, describer, measured, points, rows_of
from gpushmoo.core.schema import GROUP
from gpushmoo.model.fit import MIN_CHOSEN, NEAR_FULL, WELL_KNOWN, DeviceFit, fit_device, training
from gpushmoo.model.fit_stage import fit_cells
from gpushmoo.model.form import FIRST, LIMITS, Model, joined, taking_turns
from gpushmoo.model.launches import Launches
from hypothesis import given, settings
from hypothesis import strategies as st

RATES = ("dram_rate", "l2_rate", "l2_write_rate")
# More of these has a launch ask for less, or (narrow, of accesses of 4 bytes) waste less, or
# (stagger) its last blocks fill a wave less.
FASTER = {*RATES, "l2_end", "narrow", "stagger"}
# What rounding may take off a sum.
LEAST = 1 - 1e-9


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, float]:
    """Parameters of another device, or of this one measured badly."""
    return {name: first * draw(st.floats(0.7, 1.4)) for name, first in FIRST.items()}


def seconds(table: pd.DataFrame, values: dict[str, float]) -> Any:
    return Model(values).seconds(Launches.of(table))


def some(step: int) -> pd.DataFrame:
    """Each `step`-th of all cells: in a property every example looks at all of these."""
    return described().iloc[::step].reset_index(drop=True)


TABLE = some(3)


@given(st.sampled_from(["bytes_read", "bytes_written"]), st.floats(1, 4), parameters())
def test_more_bytes_take_longer(column: str, times: float, values: dict[str, float]) -> None:
    more = TABLE.assign(**{column: TABLE[column] * times})
    assert np.all(seconds(more, values) >= LEAST * seconds(TABLE, values))


@given(
    st.sampled_from(sorted(set(FIRST) - {"l2_end", "narrow", "stagger"})),
    st.floats(1, 4),
    parameters(),
)
def test_a_slower_device_is_slower(name: str, times: float, values: dict[str, float]) -> None:
    slower = {**values, name: values[name] / times if name in RATES else values[name] * times}
    assert np.all(seconds(TABLE, slower) >= LEAST * seconds(TABLE, values))


@given(parameters())
def test_no_launch_is_faster_than_any_of_its_limits(values: dict[str, float]) -> None:
    assert joined(2.0, 3.0, 4.0) == pytest.approx(5.0)
    launches = Launches.of(TABLE)
    limits = Model(values).limits(launches)
    assert tuple(limits) == LIMITS
    cycles = Model(values).seconds(launches) * launches.clock_hz
    for name, limit in limits.items():
        assert np.all(limit > 0), name
        assert np.all(limit <= cycles / LEAST), name


def test_waves_and_flushes() -> None:
    """Of one block, so not the whole: it alone is nothing to the bus."""
    like = next(c for c in cells() if c.kernel == "block_eq_partition")
    full = FACTS.multiprocessors * 4  # 16 warps a block
    counts = (full - 1, full, full + 1)
    at = [replace(like, problem=SQUARES[-1], params=(("num_partition", n),)) for n in counts]
    less, fits, more = seconds(rows_of(at), dict(FIRST))
    assert fits == pytest.approx(less, rel=0.01)
    turns = rows_of(at)["turns"].to_numpy()[-1]
    abreast = 1 / (1 + FIRST["stagger"] / turns)
    assert 1 + 0.5 * abreast < more / fits < 2
    model, table = Model(FIRST), described()
    share = model.l2_share(Launches.of(table))
    assert np.all(share[table["flushed"] > 0] == 0)
    warm = table["flushed"] == 0
    assert np.all(share[warm & (table["height"] == 512)] > 0.99)
    assert np.all(share[warm & (table["height"] == 8192)] < 0.01)


# A launch of one block on each of ten multiprocessors, which asks nothing yet.
ASKED = dict.fromkeys((f.name for f in fields(Launches)), 0.0)
ASKED |= {"multiprocessors": 10.0, "blocks": 10.0, "resident": 1.0, "warps": 4.0, "clock_hz": 1e9}
ASKED |= {"in_a_sample": 1.0, "cache_bytes": 1e6, "access_bytes": 16.0, "persistent": 1.0}


@pytest.mark.parametrize(
    ("limit", "asked", "cycles"),
    [
        ("start", {}, "start + sample"),
        ("start", {"in_a_sample": 4}, "start + sample / 4"),
        # The first store to a line costs more or less than those that follow it.
        ("service", {"load_lines": 9e3}, "9e3 * load_line"),
        ("service", {"store_lines": 9e3, "store_first_lines": 9e3}, "9e3 * store_line"),
        (
            "service",
            {"store_lines": 9e3, "store_first_lines": 2e3, "load_lines": 1e3},
            "2e3 * store_line + 7e3 * store_again + 1e3 * load_line",
        ),
        # Of 5 resident blocks 256 lines are open, of which L2 holds nothing, or all.
        (
            "service",
            {"resident": 5, "open_lines": 51.2, "open_sectors": 9e3, "flushed": 1},
            "9e3 * open_sector",
        ),
        (
            "service",
            {"resident": 5, "open_lines": 3 * 51.2, "open_sectors": 9e3, "flushed": 1},
            "2 * 9e3 * open_sector",
        ),
        ("service", {"resident": 5, "open_lines": 51.2, "open_sectors": 9e3}, "0"),
        # An image's texels do not go the way of lines.
        ("service", {"texel_stores": 1, "warps": 8, "store_lines": 9e3}, "8 * texel_store"),
        ("service", {"texel_loads": 1, "load_lines": 9e3, "instructions": 1e4}, "4e4 * issue"),
        (
            "service",
            {"shared_waves": 8e3, "load_lines": 1e3},
            "8e3 * shared_wave + 1e3 * load_line",
        ),
        (
            "waiting",
            {"shared_waits": 9e2, "barriers": 3e2},
            "9e2 * shared_latency + 3e2 * barrier + block + 4 * warp_launch",
        ),
        ("waiting", {"edge_waits": 1e3}, "1e3 * l2_latency + block + 4 * warp_launch"),
        ("service", {"texel_loads": 1, "filtered": 1, "warps": 8}, "8 * texel_filter"),
        ("service", {"texel_loads": 1, "filtered": 1, "warps": 8, "access_bytes": 8}, "0"),
        ("L2", {"bytes_read": 4e6}, "4e6 / l2_rate"),
        ("L2", {"bytes_read": 4e6, "blocks": 20}, "4e6 / l2_rate"),
        # A flush leaves L2 full of bytes to be written; a warm launch finds its own there.
        (
            "DRAM",
            {"bytes_read": 1e3, "flushed": 1},
            "1e3 * (1 + dirty + 2 * dirty * turn_round) / dram_rate",
        ),
        ("DRAM", {"bytes_read": 1e3}, "0"),
        ("DRAM", {"bytes_read": 1e9}, "1e9 / dram_rate"),
        (
            "DRAM",
            {"bytes_read": 1e9, "bytes_written": 1e9, "loads_a_wait": 4, "waits": 2},
            "(2e9 + 2e9 * (turn_round + 2 * turn_more + turn_later / 2)) / dram_rate",
        ),
    ],
)
def test_a_limit_is_what_its_parameters_cost(
    limit: str, asked: dict[str, float], cycles: str
) -> None:
    values = dict(FIRST) | ({} if "issue" in cycles else {"issue": 0.0})
    table = pd.DataFrame([ASKED | asked])
    [found] = Model(values).limits(Launches.of(table))[limit]
    assert found == pytest.approx(eval(cycles, {}, values), rel=1e-3, abs=1e-3)


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.integers(1, 64))
def test_blocks_with_barriers_take_turns(service: float, waiting: float, blocks: int) -> None:
    one, some, many = (float(taking_turns(service, waiting, n)) for n in (1, blocks, 1e12))
    assert one == pytest.approx(service + waiting)
    assert many == pytest.approx(max(service, waiting), rel=1e-4)
    assert many / LEAST**-1 <= some <= one / LEAST


def test_a_block_with_barriers_is_served_and_waits_one_after_the_other() -> None:
    """One block on a multiprocessor; another one beside it fills some of the time."""
    asked = ASKED | {"waits": 100.0, "load_lines": 100 * FIRST["l2_latency"] / FIRST["load_line"]}

    def cycles(resident: float, barriers: float) -> float:
        more = {"resident": resident, "blocks": 10 * resident, "barriers": barriers}
        found = asked | more | {"load_lines": asked["load_lines"] / resident, "turns": 100.0}
        model, x = Model(FIRST), Launches.of(pd.DataFrame([found]))
        start = model.limits(x)["start"][0]
        return float(model.seconds(x)[0] * 1e9 - start)

    apart, together = cycles(1.0, 0.0), cycles(1.0, 1.0)
    assert together > 1.3 * apart
    assert cycles(2.0, 1.0) < 0.95 * together


SPREAD = 0.005


def device(seed: int) -> dict[str, float]:
    """Other parameters than those that a fit begins with; those known by other means are known."""
    rng = np.random.default_rng(seed)
    off = np.exp(rng.uniform(np.log(0.8), np.log(1.25), len(FIRST)))
    return {
        name: first if name in WELL_KNOWN else float(first * factor)
        for (name, first), factor in zip(FIRST.items(), off, strict=True)
    }


def fitted(table: pd.DataFrame, seed: int) -> DeviceFit:
    cells = measured(table, device(seed), SPREAD, seed)
    return fit_device(cells, np.ones(len(cells), dtype=bool))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_fit_finds_the_parameters_of_the_device_that_made_the_times(seed: int) -> None:
    found, truth = fitted(described(), seed), device(seed)
    told = {name: p for name, p in found.parameters.items() if p.determined}
    assert len(told) >= 22
    assert {"dram_rate", "l2_rate", "dispatch", "dram_latency", "own_service"} <= set(told)
    assert found.spread == pytest.approx(SPREAD, rel=0.2)
    for name, p in told.items():
        assert p.low <= p.value <= p.high
        # The cells tell a few of them less well than to 5 %, and the interval says so.
        assert abs(np.log(p.value / truth[name])) <= max(0.05, 1.5 * np.log(p.high / p.value)), name
    exact = [n for n, p in told.items() if abs(p.value / truth[n] - 1) <= 0.05]
    assert len(exact) >= 20


@pytest.mark.slow
def test_a_fit_predicts_the_cells_that_it_did_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = measured(described(), device(3), SPREAD, 3)
    monkeypatch.setattr(type(describer()), "table", lambda _, cells: (cells, {}))
    told, predicted = fit_cells("made up", cells, describer())
    assert told["trained"] == predicted["trained"].sum()
    assert set(told["errors"]) == set(describer().workloads)
    for error in told["errors"].values():
        assert error["median"] < 2 * SPREAD
        assert error["p95"] < 0.05


IMAGES = {"texel_store", "part_texel_store", "part_texel_load"}
# Not `dirty`: what a flush left to be written back, loads have to wait for.
STORES = {"store_line", "store_again", "l2_write_rate", "l2_written"}


@pytest.mark.parametrize(
    ("kernels", "unknown"),
    [
        (["copy2d_coalesced", "global_copy", "global_load"], IMAGES),
        (["global_load", "tex2d_sum"], STORES | {"texel_store", "part_texel_store"}),
    ],
    ids=["no images", "no stores"],
)
def test_what_cells_cannot_tell(kernels: list[str], unknown: set[str]) -> None:
    table = described()
    found = fitted(table[table["kernel"].isin(kernels)], seed=1).parameters
    assert {name for name in unknown if found[name].determined} == set()
    for name in unknown:
        assert found[name].value == pytest.approx(FIRST[name], rel=1e-3), name
    assert found["dram_rate"].determined


def test_of_large_groups_at_most_a_tenth_is_trained_on_and_of_each_a_few() -> None:
    table = pd.concat([described()] * 4, ignore_index=True)
    chosen = training(table, points(table))
    for _, rows in table.groupby(list(GROUP)).indices.items():
        count = int(chosen[rows].sum())
        assert count >= MIN_CHOSEN
        assert count <= max(MIN_CHOSEN, 0.1 * len(rows))


@settings(max_examples=examples(20))
@given(st.lists(st.integers(300, 900), min_size=1, max_size=40, unique=True))
def test_no_cell_of_persistent_blocks_near_a_full_device_is_trained_on(counts: list[int]) -> None:
    table = described()
    mine = table[table["kernel"] == "block_eq_partition"].iloc[[0] * len(counts)]
    mine = mine.assign(blocks=counts, num_partition=counts).reset_index(drop=True)
    full = (mine["blocks"] / (mine["multiprocessors"] * mine["resident"])).to_numpy()
    near = (full > NEAR_FULL[0]) & (full < NEAR_FULL[1])
    chosen = training(mine, points(mine))
    assert not np.any(chosen & near)
    assert chosen.sum() == min(MIN_CHOSEN, int((~near).sum()))
