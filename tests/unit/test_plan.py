"""The plan: what a measuring job is told is all of the configuration that it needs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from conftest import ROOT
from gpushmoo.config import RunConfig, load_config
from gpushmoo.job_params import settings_of
from gpushmoo.plan import Shard, plan_shards, run_plan
from gpushmoo.shard_space import space_of


@pytest.fixture
def config(raw_config: dict[str, Any]) -> RunConfig:
    return load_config(raw_config, ROOT)


def shard_params(config: RunConfig, shard: Shard) -> dict[str, Any]:
    plan = run_plan(config, "opencl", "pocl").sweeps[shard.sweep][shard.dtype]
    return plan.shard_params(shard.index, shard.repeat)


def test_shards_are_named_once_and_cover_every_kernel_and_dtype(config: RunConfig) -> None:
    shards = plan_shards(config)
    assert len({s.path for s in shards}) == len(shards)
    assert {(s.sweep, s.dtype) for s in shards} == {
        (name, d) for name, k in config.sweeps.items() for d in k.dtypes
    }
    for s in shards:
        mates = [m for m in shards if (m.sweep, m.dtype) == (s.sweep, s.dtype)]
        places = [(n, i) for n in range(1, config.repeats + 1) for i in range(s.count)]
        assert sorted((m.repeat, m.index) for m in mates) == places


def test_a_whole_repeat_comes_after_the_other(config: RunConfig) -> None:
    repeats = [s.repeat for s in plan_shards(config)]
    assert config.repeats == 2
    assert repeats == sorted(repeats)


def test_smaller_shards_are_more_shards(raw_config: dict[str, Any], config: RunConfig) -> None:
    raw_config["measure"]["cells_per_shard"] = 2
    assert len(plan_shards(load_config(raw_config, ROOT))) > len(plan_shards(config))


def test_job_gets_back_its_settings_from_plain_parameters(config: RunConfig) -> None:
    for shard in plan_shards(config):
        params = shard_params(config, shard)
        assert list(params) == sorted(params)
        # Snakemake stores them as text; nothing may be lost on the way.
        back = json.loads(json.dumps(params))
        assert back == params
        rule = config.measure.rule.shared_among(config.repeats)
        assert settings_of(back) == replace(
            config.measure, rule=rule, repeat=shard.repeat, repeats=config.repeats
        )
        kernel, space = config.sweeps[shard.sweep], space_of(back)
        assert tuple(space.problems) == kernel.problems
        assert tuple(space.cache_states) == kernel.cache_states
        assert (space.dtype, space.index, space.count) == (shard.dtype, shard.index, shard.count)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", 7),
        ("thread_limit", 512),
        ("device", 1),
        ("measure.warmup", 3),
        ("measure.repeats", 1),
        ("measure.max_samples", 99),
        ("measure.cell_timeout_s", 1.5),
        ("kernels.block_eq_partition.sizes", [64]),
        ("kernels.block_eq_partition.axes", {"num_partition": 3}),
        ("kernels.block_eq_partition.variants", ["exact"]),
    ],
)
def test_what_changes_the_measurement_changes_the_parameters(
    raw_config: dict[str, Any], config: RunConfig, path: str, value: Any
) -> None:
    *parents, last = path.split(".")
    place = raw_config
    for name in parents:
        place = place[name]
    assert place[last] != value
    place[last] = value
    shard = Shard("block_eq_partition", "float", 0, 1)
    before = shard_params(config, shard)
    assert shard_params(load_config(raw_config, ROOT), shard) != before


def test_what_only_the_report_reads_does_not_measure_again(
    raw_config: dict[str, Any], config: RunConfig
) -> None:
    raw_config |= {"run": "other", "strict": True, "fit": {"holdout": 0.1}, "simulate": {}}
    raw_config["kernels"]["copy2d_coalesced"]["sizes"] = [64]
    shard = Shard("block_eq_partition", "float", 0, 1)
    before = shard_params(config, shard)
    assert shard_params(load_config(raw_config, ROOT), shard) == before
