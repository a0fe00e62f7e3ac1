"""Sizes that follow the device: what they are, who sees them, and what is refused."""

import io
import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from gpushmoo import sweep
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.run_quality import cells_of
from gpushmoo.core.errors import ConfigError, SizeError
from gpushmoo.core.space import Problem, RelativeSize, ShardSpace, known_problems
from gpushmoo.devices.base import Device
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.figures.draw_stage import where_of
from gpushmoo.interactive.arguments import checked
from gpushmoo.interactive.commands import options
from gpushmoo.measuring.job import ShardTask, run_shard
from gpushmoo.measuring.shard_file import Earlier
from gpushmoo.planning import flow as flow_module
from gpushmoo.planning.config import check_memory, default_config, load_config
from gpushmoo.planning.flow import Flow
from gpushmoo.planning.plan import plan_shards, run_plan
from gpushmoo.planning.sweeps import on_device
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import read_shard
from gpushmoo.workloads.loader import declared_fault, load_kernel, versions_of
from gpushmoo.workloads.sizes import SIDES, Room, resolved, working_set

MIB = 2**20
H200 = Room(50 * MIB, False, 141 * 10**9, 141 * 10**9)
SMALL = Room(6 * MIB, False, 8 * 2**30, 2 * 2**30)
CPU = Room(32 * MIB, True, 8 * 2**30, 8 * 2**30)
COPY = "kernels.copy2d_coalesced.sizes"
BLOCK = {"block_x": [32], "block_y": [8]}


def config_of(*sizes: Any, kernel: str = "copy2d_coalesced", **spec: Any) -> dict[str, Any]:
    """The default configuration with one sweep."""
    raw = default_config() | {"only": [kernel]}
    raw["kernels"] = {kernel: {"sizes": [*sizes], **spec}}
    return raw


def sizes_on(room: Room, *sizes: Any, kernel: str = "copy2d_coalesced", **spec: Any) -> list[str]:
    """What they are on a device."""
    config = load_config(config_of(*sizes, kernel=kernel, **spec), ROOT)
    found = on_device(config.sweeps, room)[kernel]
    return [problem.label for problem in known_problems(found.sizes)]


@pytest.mark.parametrize(
    ("room", "kernel", "dtypes", "expected"),
    [
        (H200, "copy2d_coalesced", ["float"], ["5120x5120", "1280x1280"]),
        # Outside of the cache by the smallest type, inside by the largest.
        (H200, "copy2d_coalesced", ["double", "float3", "float"], ["5120x5120", "704x704"]),
        # It reads and stores nothing else.
        (H200, "global_load", ["float"], ["7680x7680", "1792x1792"]),
        (H200, "dot_resident", ["float"], ["1x27262976", "1x1572864"]),
        (SMALL, "copy2d_coalesced", ["float"], ["1792x1792", "384x384"]),
        (CPU, "copy2d_coalesced", ["float"], ["4096x4096", "1024x1024"]),
    ],
)
def test_a_size_is_a_multiple_of_the_cache_rounded_away_from_it(
    room: Room, kernel: str, dtypes: list[str], expected: list[str]
) -> None:
    asked = [{"of_cache": 4}, {"of_cache": 0.25}]
    assert sizes_on(room, *asked, kernel=kernel, dtypes=dtypes) == expected
    workload = load_kernel(ROOT / "kernels" / kernel).workload
    outside, inside = (Problem(*map(int, label.split("x"))) for label in expected)
    for dtype in dtypes:
        assert working_set(workload, outside, dtype) >= 4 * room.cache
        assert working_set(workload, inside, dtype) <= room.cache / 4


def test_blocks_of_usual_shapes_divide_all_sides() -> None:
    assert all(side % 64 == 0 for side in SIDES if side > 32)
    assert all(math.log2(side).is_integer() for side in SIDES if side < 256)
    # No step is larger than an eighth, or 64.
    assert all(b - a <= max(64, a / 8) for a, b in itertools.pairwise(SIDES) if a > 128)


def test_a_kernels_own_constraint_on_sizes_is_respected() -> None:
    copy = load_kernel(ROOT / "kernels/copy2d_coalesced").workload

    def valid(self: Any, cell: Any) -> str | None:
        return "rows of 2048" if cell.problem.width % 2048 else None

    picky = type("Picky", (type(copy),), {"valid": valid})()

    def side(of_cache: float) -> int:
        sizes = [RelativeSize(of_cache, "float")]
        space = ShardSpace("float", ["element"], sizes, ["warm"], BLOCK, 0, 1)
        return resolved(space, picky, H200).problems[0].width

    assert [side(4.0), side(0.9)] == [6144, 2048]


def test_a_cpu_may_have_a_size_of_its_own() -> None:
    asked = ({"of_cache": 4, "on_cpu": 1024}, {"of_cache": 0.25, "on_cpu": [512, 1024]})
    assert sizes_on(CPU, *asked, dtypes=["float"]) == ["1024x1024", "512x1024"]
    assert sizes_on(H200, *asked, dtypes=["float"]) == ["5120x5120", "1280x1280"]
    # There the cache does not matter.
    for is_cpu in (True, False):
        assert sizes_on(Room(0, is_cpu, 2**33, 2**33), *asked) == ["1024x1024", "512x1024"]


def test_equal_sizes_are_measured_once() -> None:
    asked = ({"of_cache": 4}, {"of_cache": 3.9}, 5120, {"of_cache": 4, "on_cpu": 64})
    assert sizes_on(H200, *asked, dtypes=["float"]) == ["5120x5120"]


def test_no_device_is_needed_to_count_shards_and_the_plan_has_what_was_asked() -> None:
    asked = [{"of_cache": 4}, {"of_cache": 0.25, "on_cpu": 512}]
    raw = config_of(*asked, dtypes=["float", "double"])
    raw["measure"]["cells_per_shard"] = 1
    config = load_config(raw, ROOT)
    explicit = load_config(raw | {"kernels": config_of(64, 512)["kernels"]}, ROOT)
    of_float = [s for s in plan_shards(config) if s.dtype == "float"]
    assert of_float == [s for s in plan_shards(explicit) if s.dtype == "float"]
    plan = run_plan(config, "opencl", "pocl")
    job = plan.job(Path("x/copy2d_coalesced/double/0001-of-0002.parquet"))
    assert job is not None
    assert job.sizes == [
        {"dtype": "float", "of_cache": 4.0},
        {"dtype": "double", "of_cache": 0.25, "on_cpu": [512, 512]},
    ]
    # Both parts see the same sizes, of which each has one.
    copy = config.sweeps["copy2d_coalesced"].folder.workload
    parts = [job.part(i, 1).space for i in (0, 1)]
    rounds = [[p.label for p, _ in resolved(part, copy, H200).rounds] for part in parts]
    assert rounds == [["5120x5120"], ["896x896"]]
    # Of equal sizes the second part has none.
    alone = [resolved(part.at([Problem(8, 8)] * 2), copy, H200).rounds for part in parts]
    assert list(map(len, alone)) == [1, 0]


def test_one_version_is_compiled_ahead_and_no_cell_is_judged() -> None:
    config = load_config(config_of({"of_cache": 4}, dtypes=["float"], variants=["tile32"]), ROOT)
    found = config.sweeps["copy2d_coalesced"]
    assert [v.name for v in found.versions["float"]] == ["tile32"]
    transpose = load_config(config_of({"of_cache": 4}, kernel="transpose"), ROOT).sweeps
    workload = transpose["transpose"].folder.workload
    dtype = transpose["transpose"].dtypes[0]
    space = transpose["transpose"].space(dtype)
    assert set(versions_of(workload, space.at([Problem(512, 512)]))) <= {
        *versions_of(workload, space)
    }


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([{"of_cache": 0}], [f"{COPY}.0.of_cache' is 0; it must be more than 0"]),
        ([{"of_cache": "4"}], [f"{COPY}.0.of_cache' is '4'", "remove the quotes"]),
        ([{"of_cache": math.inf}], [f"{COPY}.0.of_cache", "finite"]),
        ([{"of_cash": 4}], [f"{COPY}.0.of_cash", "allowed here: of_cache, on_cpu"]),
        ([{"of_cache": 4, "on_gpu": 4}], [f"{COPY}.0.on_gpu", "Did you mean 'on_cpu'?"]),
        ([{"on_cpu": 4}], [f"{COPY}.0.of_cache' is missing"]),
        ([{"of_cache": 4, "on_cpu": 0}], [f"{COPY}' holds 0", "at least 1"]),
        ([{"of_cache": 4, "on_cpu": "1"}], [f"{COPY}.0.on_cpu", "remove the quotes"]),
        ([{"of_cache": 4}, {"of_cache": 4.0}], [COPY, "{of_cache: 4} is given twice"]),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(sizes: list[Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(config_of(*sizes), ROOT)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_kernel_that_the_host_feeds_has_sizes_in_elements() -> None:
    with pytest.raises(ConfigError, match="data come from the host"):
        load_config(config_of({"of_cache": 4}, kernel="dot_streamed"), ROOT)


@pytest.mark.parametrize(
    ("room", "factor", "words"),
    [
        # The factor, what it asks for, and what there is.
        (H200, 3000, ["{of_cache: 3000}", "GiB, but the device has 131.32 GiB", "smaller factor"]),
        (SMALL, 800, ["{of_cache: 800}", "needs a", "allows 2.00 GiB in one buffer"]),
        (Room(0, False, 2**30, 2**30), 4, ["{of_cache: 4}", "does not report"]),
    ],
)
def test_a_size_that_a_device_cannot_have_is_refused(
    room: Room, factor: float, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        sizes_on(room, {"of_cache": factor}, dtypes=["float"])
    assert str(caught.value).startswith(f"{COPY}: ")
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_kernel_that_moves_nothing_has_no_such_size() -> None:
    space = ShardSpace("float", ["x"], [RelativeSize(4.0, "float")], ["warm"], {}, 0, 1)
    with pytest.raises(SizeError, match="no size of dispatch"):
        resolved(space, load_kernel(ROOT / "kernels/dispatch").workload, H200)


@pytest.mark.parametrize(
    ("one", "other", "room"),
    [
        ({"of_cache": 4}, {"of_cache": 4.0, "on_cpu": 64}, None),
        ({"of_cache": 4, "on_cpu": 64}, {"of_cache": 2, "on_cpu": 64}, None),
        ({"of_cache": 4, "on_cpu": 64}, 64, None),
        # On this device alone.
        ({"of_cache": 4}, {"of_cache": 3.9}, H200),
        ({"of_cache": 4}, 5120, H200),
    ],
)
def test_two_sweeps_share_no_cell(one: Any, other: Any, room: Room | None) -> None:
    raw = config_of(one, dtypes=["float"])
    more = {"kernel": "copy2d_coalesced", "dtypes": ["float"], "sizes": [other]}
    raw["kernels"]["more"] = more
    raw["only"] = ["copy2d_coalesced", "more"]
    if room is None:
        with pytest.raises(ConfigError, match="twice"):
            load_config(raw, ROOT)
        return
    config = load_config(raw, ROOT)
    with pytest.raises(ConfigError, match="twice"):
        on_device(config.sweeps, room)


def test_the_start_of_a_run_names_what_sizes_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    info = SimpleNamespace(
        name="H200", kind="gpu", cache=H200.cache, global_memory=H200.memory, max_allocation=2**36
    )
    choice = DeviceChoice("cuda", 0, "auto", Path())
    monkeypatch.setattr(flow_module, "resolve", lambda _: (choice, info))
    raw = config_of({"of_cache": 4}, {"of_cache": 3.9}, dtypes=["float"])
    flow = Flow(raw, ask_device=True)
    of_it = "is 5120 x 5120 (copy2d_coalesced)"
    assert flow.sizes_here == f"on 'H200' {{of_cache: 4}} {of_it}; {{of_cache: 3.9}} {of_it}."
    assert (
        flow.sweeps_here["copy2d_coalesced"].n_cells * 2
        == flow.config.sweeps["copy2d_coalesced"].n_cells
    )
    # Jobs get what was asked, so that knowing the device measures nothing again.
    unasked = Flow(raw | {"backend": "cuda"}, ask_device=False)
    told = [f.plan.sweeps["copy2d_coalesced"]["float"].job.sizes for f in (flow, unasked)]
    assert told[0] == told[1]
    assert unasked.sizes_here is None
    raw = config_of({"of_cache": 4000}, dtypes=["float"])
    with pytest.raises(ConfigError, match=r"\{of_cache: 4000\}.* GiB, but the device has 131"):
        Flow(raw, ask_device=True)
    # Without a device there is no cache to count by.
    check_memory(load_config(raw, ROOT), 2**20, 2**20)


@pytest.fixture
def factor(opencl_device: Device) -> float:
    """2 · 128 · 128 floats over the cache."""
    return 2 * 4 * 128 * 128 / opencl_device.info.cache


def measured(flow: Flow, cache: Path, kept: bool = False) -> str:
    """Measure all shards; what was printed."""
    terminal = io.StringIO()
    for shard in flow.shards:
        wildcards = SimpleNamespace(sweep=shard.sweep, dtype=shard.dtype, shard=shard.name)
        job, out = flow.job(wildcards), Path(flow.path("cells", shard.path))
        earlier = Earlier(out, job, "code") if kept else None
        if earlier is not None:
            earlier.read()
        run_shard(ShardTask(job, (1, 1), cache, earlier=earlier), out, terminal)
    return terminal.getvalue()


SHORT = {"repeats": 1, "min_samples": 6, "max_samples": 6, "warmup": 0}


def flow_of(choice: DeviceChoice, results: Path, *sizes: Any, **spec: Any) -> Flow:
    raw = config_of(*sizes, variants=["element"], axes=BLOCK, **spec)
    raw |= {"backend": choice.backend, "opencl_runtime": choice.runtime}
    raw["measure"] = {**raw["measure"], **SHORT, "cells_per_shard": 1}
    return Flow(raw, ask_device=False, results=results)


def test_a_run_measures_aggregates_and_draws_what_the_device_gives(
    opencl_choice: DeviceChoice, tmp_path: Path, factor: float
) -> None:
    sizes = [{"of_cache": factor}, {"of_cache": factor * 1.2}, 128, {"of_cache": 1, "on_cpu": 64}]
    flow = flow_of(opencl_choice, tmp_path, *sizes, dtypes=["float"])
    assert len(flow.shards) == 4
    measured(flow, opencl_choice.cache)
    table, metadata = read_shard(Path(flow.path("cells", flow.shards[-1].path)))
    assert (len(table), metadata["resolved_sizes"]) == (0, [[128, 128], [64, 64]])
    dataset = Path(flow.path("dataset"))
    aggregate([Path(f) for f in flow.shard_files], dataset, one_model=True, plan=flow.plan)
    cells = read_cells(dataset)
    assert sorted(zip(cells["height"], cells["status"], strict=True)) == [(64, "ok"), (128, "ok")]
    assert len(cells_of(cells, flow.swept["copy2d_coalesced"])) == 2
    # The figure is of the factor that is largest, here the size of a CPU, the nearest to it.
    (figure,) = flow.figures
    assert figure.name.endswith("-1-of-cache-warm")
    shown = where_of(flow.figure_job(SimpleNamespace(figure=figure.name)), dataset)
    assert (shown["height"], shown["width"]) == (128, 128)


def test_a_kept_cell_is_known_by_its_size_however_that_was_asked_for(
    opencl_choice: DeviceChoice, tmp_path: Path, factor: float
) -> None:
    cache = opencl_choice.cache
    first = flow_of(opencl_choice, tmp_path, 128, dtypes=["float"])
    assert "measured before" not in measured(first, cache, kept=True)
    again = flow_of(opencl_choice, tmp_path, {"of_cache": factor}, dtypes=["float"])
    assert "1 cells were measured before" in measured(again, cache, kept=True)


def test_a_call_takes_such_a_size(opencl_choice: DeviceChoice, factor: float) -> None:
    where = {"backend": opencl_choice.backend, "opencl_runtime": opencl_choice.runtime}
    one = sweep(
        ROOT / "kernels/copy2d_coalesced",
        axes=BLOCK,
        dtypes="float",
        variants="element",
        sizes={"of_cache": factor},
        progress=False,
        min_samples=6,
        max_samples=6,
        **where,
    )
    assert one.cells[["height", "width"]].drop_duplicates().to_numpy().tolist() == [[128, 128]]
    with pytest.raises(ConfigError, match=r"Argument 'sizes\.0\.of_cache' is 0"):
        checked({"sizes": {"of_cache": 0}})
    assert options.sizes("512,of_cache:4,8x16") == [512, {"of_cache": 4.0}, (8, 16)]


def test_a_workload_may_have_such_a_size_by_default(tmp_path: Path) -> None:
    copy = load_kernel(ROOT / "kernels/copy2d_coalesced").workload

    def fault(size: Any) -> str | None:
        return declared_fault(type("Own", (type(copy),), {"sizes": (size,)})())

    assert fault({"of_cache": 4, "on_cpu": 512}) is None
    assert "{'of_cache': 4}" in str(fault({"of_cache": 0}))


DEFAULTS = load_config(default_config(), ROOT).sweeps
# What the default run measured on every device before sizes followed it.
ON_A_CPU = {
    **dict.fromkeys(("copy2d_coalesced", "copy2d_document"), frozenset({"1024x1024"})),
    **dict.fromkeys(("global_load", "global_store"), frozenset({"512x512", "1024x1024"})),
    "dot_resident": {"1x4096", "1x262144", "1x4194304"},
}
IMAGES = ("tex2d_sum", "tex2d_sum_mappings", "surf2d_memset", "surf2d_memset_mappings")
ON_A_CPU |= dict.fromkeys(("block_eq_partition", *IMAGES), frozenset({"512x512"}))


def test_the_default_run_on_a_cpu_has_the_sizes_that_two_cores_can_do() -> None:
    found = on_device(DEFAULTS, CPU)
    labels = {n: {p.label for p in known_problems(s.sizes)} for n, s in found.items()}
    assert {name: labels[name] for name in ON_A_CPU} == ON_A_CPU


@pytest.mark.parametrize("room", [H200, SMALL])
def test_the_default_run_on_a_gpu_is_of_memory_and_of_the_cache(room: Room) -> None:
    found = on_device(DEFAULTS, room)
    of_device = [n for n, s in DEFAULTS.items() if s.asks_for_sizes]
    assert {*of_device} == {*ON_A_CPU}
    places: dict[str, set[float]] = {}
    for name in of_device:
        sweep, workload = found[name], found[name].folder.workload
        for problem, dtype in itertools.product(known_problems(sweep.sizes), sweep.dtypes):
            share = working_set(workload, problem, dtype) / room.cache
            places.setdefault(name, set()).add(share)
    assert all(max(shares) >= 4.0 for shares in places.values())
    both = ("copy2d_coalesced", "tex2d_sum", "surf2d_memset", "global_load", "global_store")
    assert all(min(places[name]) <= 0.25 for name in both)
    # What is compared with a peak has one within the same place: in memory, or in the cache.
    peaks = places["global_load"] | places["global_store"]
    for name in (*both, "copy2d_document", "block_eq_partition"):
        outside = [share for share in places[name] if share > 1.0]
        assert min(outside) >= 4.0
        assert all(min(abs(math.log(s / p)) for p in peaks) < math.log(4.0) for s in outside)
    # The second document's shapes: all of 128 and of 192 threads from 4 to 64 by what it swept.
    for name in ("tex2d_sum", "surf2d_memset"):
        axes = DEFAULTS[name].known_values
        for threads in (128, 192):
            shapes = {(x, threads // x) for x in range(4, 65) if threads % x == 0}
            shapes = {(x, y) for x, y in shapes if 4 <= y <= 64}
            assert all(x in axes["block_x"] and y in axes["block_y"] for x, y in shapes)
