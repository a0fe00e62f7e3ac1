"""What a configuration may ask for is bounded; what a measuring job is told is all it needs."""

import copy
import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from gpushmoo.core.errors import ConfigError
from gpushmoo.core.shard_job import ShardJob
from gpushmoo.core.space import Residency, expand_axis, most_values
from gpushmoo.measuring.sampling import Sampling, StoppingRule
from gpushmoo.planning.config import RunConfig, default_config, load_config
from gpushmoo.planning.flow import Flow
from gpushmoo.planning.plan import Shard, budget_of, plan_shards, run_plan
from gpushmoo.workloads.host_fed import count_cuts, cuts
from hypothesis import given
from hypothesis import strategies as st

RAW = default_config()
COPY = "copy2d_coalesced"
N = 2**28
ALL = {"from": 1, "to": N}
ONE = {"dtypes": ["float"], "variants": ["element"], "sizes": [64]}


def copies(**spec: Any) -> dict[str, Any]:
    return {"only": [COPY], "kernels": {COPY: {**ONE, "axes": {}, **spec}}}


def axes(x: Any, y: Any = 1) -> dict[str, Any]:
    return copies(axes={"block_x": x, "block_y": y})


def sweeps(count: int, **spec: Any) -> dict[str, Any]:
    named = {f"s{i}": {"kernel": COPY, **ONE, "sizes": [64 + i], **spec} for i in range(count)}
    return {"only": None, "kernels": named}


def measured(**values: Any) -> dict[str, Any]:
    return {"measure": {**RAW["measure"], **values}}


def simulated(**values: Any) -> dict[str, Any]:
    spec = {"levels": ["bus"], "sizes": [256], **values}
    return {"chapters": {"tesla_c1060": {"simulate": {"tesla-c1060": spec}}}}


def streamed(**params: int) -> dict[str, Any]:
    """A time line of as many elements as there may be."""
    chapters = copy.deepcopy(RAW["chapters"])
    cell = next(iter(chapters["streamed_dot"]["timeline"].values()))
    cell |= {"size": N, "axes": {**cell["axes"], **params}}
    return {"chapters": chapters}


# What is asked for beside the default, and what the sentence must say.
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "two long axes": (
        axes(ALL, ALL),
        [f"kernels.{COPY}: about 10^17 cells", "2,000,000", "sweep fewer", "measure.max_cells"],
    ),
    "one cell too many": (
        {**axes({"from": 1, "to": 51}), **measured(max_cells=50)},
        [f"kernels.{COPY}: 51 cells; a run may have 50:"],
    ),
    "lists of ranges": (axes([{**ALL, "step": s} for s in range(1, 2000)]), ["cells"]),
    "two sweeps to be told apart": (
        {**sweeps(2, sizes=[64], axes={"block_x": ALL})},
        ["kernels.s0: 4,294,967,296 of the run's 8,589,934,592 cells"],
    ),
    "sizes, types and variants": (
        copies(
            sizes=list(range(1, 5000)),
            dtypes=["float", "double", "float3", "float4"],
            variants=["element", "tile32"],
            axes={"block_x": {"from": 1, "to": 64}, "block_y": 1},
        ),
        ["2,559,488 cells"],
    ),
    "sweeps": (sweeps(257), ["'kernels'", "at most 256 entries"]),
    "shards": (
        {
            **copies(sizes=list(range(1, 1500)), axes={"block_x": 1, "block_y": [1, 2]}),
            **measured(cells_per_shard=1, repeats=100),
        },
        ["measure.cells_per_shard: 1 makes 149900 measuring jobs", "may have 100000"],
    ),
    "simulated blocks": (simulated(num_partition=ALL), ["num_partition: 268435456 values"]),
    "lists of simulated blocks": (simulated(num_partition=[ALL] * 3000), ["at most 65536"]),
    "pieces of a time line": (streamed(chunk=1), ["axes: 268435456 elements in ", "at most 65536"]),
    "streams of a time line": (streamed(streams=N, min_per_stream=1), ["at most 65536"]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_too_much_is_refused_in_one_sentence(name: str) -> None:
    asked, words = CASES[name]
    with pytest.raises(ConfigError) as caught:
        Flow({**RAW, **asked}, ask_device=False)
    said = str(caught.value)
    assert [w for w in words if w not in said] == []
    assert len(said) < 300


def test_what_is_just_not_too_much_is_taken() -> None:
    asked = {**RAW, **axes({"from": 1, "to": 50}), **measured(max_cells=50)}
    assert {s.count for s in plan_shards(load_config(asked, ROOT))} == {1}
    # A value that is in two parts of an axis is one.
    twice = {**RAW, **axes([{"from": 1, "to": 9}, {"from": 5, "to": 12}]), **measured(max_cells=17)}
    assert load_config(twice, ROOT).sweeps
    for n, streams, fewest, chunk in product(range(40), (1, 3, 50), (0, 1, 7), (0, 1, 3, 100)):
        made, counted = (f(n, streams, fewest, chunk) for f in (cuts, count_cuts))
        assert len(made) <= counted <= len(made) + streams


PART = st.one_of(
    st.integers(1, 40),
    st.builds(
        lambda first, more, step: {"from": first, "to": first + more, "step": step},
        st.integers(1, 9),
        st.integers(0, 30),
        st.integers(1, 50),
    ),
    st.builds(
        lambda waves, points: {"to_resident": waves, "points": points},
        st.floats(0.01, 16.0),
        st.integers(1, 40),
    ),
)


@given(
    spec=PART | st.lists(PART, min_size=1, max_size=3),
    multiprocessors=st.integers(1, 20),
    resident_blocks=st.integers(1, 4),
)
def test_values_are_counted(spec: Any, multiprocessors: int, resident_blocks: int) -> None:
    residency = Residency(multiprocessors, resident_blocks)
    found, most = len(expand_axis(spec, residency)), most_values(spec, residency)
    assert found <= most
    if isinstance(spec, int) or "from" in spec:
        assert found == most


@pytest.fixture
def config(raw_config: dict[str, Any]) -> RunConfig:
    return load_config(raw_config, ROOT)


def shard_params(config: RunConfig, shard: Shard) -> dict[str, Any]:
    plan = run_plan(config, "opencl", "pocl").sweeps[shard.sweep][shard.dtype]
    return plan.job.part(shard.index, shard.repeat).plain


def test_shards_cover_every_kernel_once(raw_config: dict[str, Any], config: RunConfig) -> None:
    shards = plan_shards(config)
    assert len({s.path for s in shards}) == len(shards)
    assert {(s.sweep, s.dtype) for s in shards} == {
        (name, d) for name, k in config.sweeps.items() for d in k.dtypes
    }
    for s in shards:
        mates = [m for m in shards if (m.sweep, m.dtype) == (s.sweep, s.dtype)]
        places = [
            (n, i) for n in range(1, config.settings.measure.repeats + 1) for i in range(s.count)
        ]
        assert sorted((m.repeat, m.index) for m in mates) == places
    # A whole repeat comes after the other.
    assert config.settings.measure.repeats > 1
    assert [s.repeat for s in shards] == sorted(s.repeat for s in shards)
    raw_config["measure"]["cells_per_shard"] = 2
    assert len(plan_shards(load_config(raw_config, ROOT))) > len(shards), "smaller ones are more"


def test_a_budget_is_shared_by_cells_and_half_of_it_is_the_first_repeats(
    raw_config: dict[str, Any], config: RunConfig
) -> None:
    budget, shards = config.settings.measure.budget, plan_shards(config)
    seconds = {repeat: [0.0] for repeat in (1, 2, 3)}
    for shard in shards:
        seconds[shard.repeat].append(budget_of(config, shard) or 0.0)
    sums = {repeat: sum(each) for repeat, each in seconds.items()}
    assert sums == pytest.approx({1: budget / 2, 2: budget / 4, 3: budget / 4})
    raw_config["measure"]["budget"] = None
    assert budget_of(load_config(raw_config, ROOT), shards[0]) is None


def test_job_gets_back_its_settings_from_plain_parameters(config: RunConfig) -> None:
    for shard in plan_shards(config):
        params = shard_params(config, shard)
        assert list(params) == sorted(params)
        # Snakemake stores them as text; nothing may be lost on the way.
        back = json.loads(json.dumps(params))
        assert back == params
        job = ShardJob.of_plain(back)
        assert job.plain == back
        sampling, asked = Sampling.of(job), config.settings.measure.of_jobs
        of_rule = ("min_samples", "max_samples", "relative_half_width", "cell_budget_s")
        whole = StoppingRule(*(asked[name] for name in of_rule))
        assert sampling.rule == whole.shared_among(asked["repeats"])
        assert (job.repeat, job.measure.repeats) == (shard.repeat, asked["repeats"])
        assert (job.seed, sampling.search.mode) == (
            config.settings.seed,
            asked["search"]["mode"],
        )
        assert sampling.search.reference_cells
        alone = {**back, "measure": {**back["measure"], "repeats": 1}}
        assert not Sampling.of(ShardJob.of_plain(alone)).search.reference_cells
        kernel, space = config.sweeps[shard.sweep], job.space
        assert tuple(space.sizes) == kernel.sizes
        assert tuple(space.cache_states) == kernel.cache_states
        assert (space.dtype, space.index, space.count) == (shard.dtype, shard.index, shard.count)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", 7),
        ("thread_limit", 512),
        ("device", 1),
        ("measure.cell_timeout_s", 1.5),
        ("kernels.block_eq_partition.sizes", [64]),
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


def test_the_report_measures_nothing_again(raw_config: dict[str, Any], config: RunConfig) -> None:
    raw_config |= {"run": "other", "strict": True}
    raw_config["kernels"]["copy2d_coalesced"]["sizes"] = [64]
    shard = Shard("block_eq_partition", "float", 0, 1)
    before = shard_params(config, shard)
    assert shard_params(load_config(raw_config, ROOT), shard) == before


def test_the_limit_of_compilations_compiles_again_and_measures_nothing_again(
    raw_config: dict[str, Any], config: RunConfig
) -> None:
    shard = Shard("block_eq_partition", "float", 0, 1)
    wildcards = SimpleNamespace(sweep=shard.sweep, dtype=shard.dtype)
    before = shard_params(config, shard), Flow(raw_config, ask_device=False).build_job(wildcards)
    raw_config["measure"]["compile_timeout_s"] = 5.0
    flow = Flow(raw_config, ask_device=False)
    assert shard_params(flow.config, shard) == before[0]
    assert flow.build_job(wildcards) == replace(before[1], compile_timeout_s=5.0)
