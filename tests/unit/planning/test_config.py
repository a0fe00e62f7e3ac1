"""The configuration: what is wrong is said in one sentence that names the key."""

import copy
import datetime
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from conftest import ROOT
from gpushmoo.chapters import find_chapters, load_chapter
from gpushmoo.core.errors import ConfigError
from gpushmoo.core.keys import keys_of, kinds_of
from gpushmoo.core.measure_settings import Measure, Search
from gpushmoo.core.paths import CHAPTERS
from gpushmoo.core.run_plan import PLAN_FILE
from gpushmoo.core.space import Cell, Problem, Residency, enumerate_cells, expand_axis
from gpushmoo.planning.config import (
    RunConfig,
    check_memory,
    default_config,
    load_config,
    merged,
)
from gpushmoo.planning.plan import plan_shards
from gpushmoo.planning.settings import Settings, json_schema
from gpushmoo.planning.sweeps import SweepConfig, _apart
from gpushmoo.workloads.loader import load_kernel
from hypothesis import given
from hypothesis import strategies as st
from snakemake.utils import update_config

DEFAULT = default_config()
COPY = "kernels.copy2d_coalesced"
TEX = "kernels.tex2d_sum"
DOT = "kernels.dot_streamed"
AXIS = "kernels.block_eq_partition.axes.num_partition"


def changed(path: str, value: Any) -> dict[str, Any]:
    """The default configuration with one value put at a dotted path."""
    config: dict[str, Any] = copy.deepcopy(DEFAULT)
    *parents, last = path.split(".")
    place = config
    for name in parents:
        place = place[name]
    place[last] = value
    return config


def sentence(config: Mapping[str, Any]) -> str:
    """The one sentence that refuses `config`."""
    with pytest.raises(ConfigError) as caught:
        load_config(config, ROOT)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert text.endswith((".", "?"))
    assert all(map(is_key, re.findall(r"^Config key '([^']+)'", text))), text
    return text


MIN_SAMPLES = DEFAULT["measure"]["min_samples"]


DEFAULTS = load_config(DEFAULT, ROOT)


def overlaid(*names: str, **changes: Any) -> RunConfig:
    """The default with configuration files over it, and what the command line says."""
    merged = copy.deepcopy(DEFAULT)
    for name in names:
        update_config(merged, yaml.safe_load((ROOT / "config" / name).read_text()))
    config = load_config(merged | changes, ROOT)
    check_memory(config, config.device_memory, config.device_memory)
    return config


@pytest.mark.parametrize("name", ["seeds", "gallery", "machine"])
def test_of_a_sweep_for_a_gpu_no_cell_is_refused(name: str) -> None:
    config = overlaid(f"{name}.yaml")
    assert (config.settings.run, config.settings.backend) == (name, "cuda")
    for sweep in config.sweeps.values():
        assert all(sweep.folder.workload.launch(cell).threads for cell in cells_of(sweep))


@pytest.mark.parametrize("only", [None, ["stencil5"]])
def test_a_study_adds_the_sweeps_of_its_file(only: list[str] | None) -> None:
    kernels = DEFAULT["kernels"] | {"stencil5": {}, "machine_issue": None}
    config = load_config(DEFAULT | {"studies": ["machine"], "kernels": kernels, "only": only}, ROOT)
    own = {f"machine_{n}": s for n, s in overlaid("machine.yaml").sweeps.items() if n != "issue"}
    swept = {n: s for n, s in config.sweeps.items() if n.startswith("machine_")}
    assert {n: cells_of(s) for n, s in swept.items()} == {n: cells_of(s) for n, s in own.items()}
    assert ("stencil5" in config.sweeps, "tex2d_sum" in config.sweeps) == (True, only is None)


def timelines_of(config: RunConfig) -> dict[str, Cell]:
    """Cells of the chapter's time lines, by their names."""
    cells = config.chapters["streamed_dot"].plan.cells
    return {key.removeprefix("chapters.streamed_dot.timeline."): c for key, c in cells.items()}


def cells_of(sweep: SweepConfig, residency: Residency = Residency(132, 4)) -> list[Cell]:  # noqa: B008
    """All cells of a sweep, on a device that holds so many blocks."""
    axes = {name: expand_axis(spec, residency) for name, spec in sweep.axes.items()}
    return [
        cell
        for dtype in sweep.dtypes
        for cell in enumerate_cells(
            sweep.folder.name, dtype, sweep.variants, sweep.sizes, axes, sweep.cache_states
        )
    ]


def test_both_sweeps_make_one_run() -> None:
    full, dots = overlaid("full.yaml"), overlaid("dots.yaml")
    both = overlaid("full.yaml", "dots.yaml", only=None)
    # The default's small dot products are no part of the full sweep, but of that of dot products.
    assert set(both.sweeps) == set(full.sweeps) | set(dots.sweeps)
    assert set(full.sweeps).isdisjoint(dots.sweeps)
    for name, sweep in full.sweeps.items():
        assert both.sweeps[name].axes == sweep.axes, name
    assert timelines_of(both) == timelines_of(dots)
    assert plan_shards(both)


def described(kind: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each key of a section and of those in it, and its meaning; `*` stands for free names."""
    for name, key in keys_of(kind).items():
        yield f"{path}{name}", key.meaning
        for inner in parts_of(key.allowed):
            yield from described(inner, f"{path}{name}.")


def parts_of(allowed: Any) -> Iterator[Any]:
    """The types in an annotation."""
    for kind in kinds_of(allowed):
        yield kind
        for inner in get_args(kind):
            yield from parts_of(inner)


def is_key(name: str) -> bool:
    """Whether a configuration may have a key of this name, or the place of a list in it."""
    allowed: list[Any] = [Settings]
    for part in name.split("."):
        allowed = [inner for kind in allowed for inner in below(kind, part)]
    return bool(allowed)


def below(kind: Any, part: str) -> list[Any]:
    """The types at a key of a section or of free names, or at a place of a list."""
    if get_origin(kind) in (dict, tuple):
        inner = get_args(kind)[1 if get_origin(kind) is dict else 0]
        return kinds_of(inner) if part.isdecimal() == (get_origin(kind) is tuple) else []
    keys = keys_of(kind)
    return kinds_of(keys[part].allowed) if part in keys else []


def test_every_key_is_described() -> None:
    chapters = [load_chapter(path).chapter.options for path in find_chapters([CHAPTERS]).values()]
    found = [each for kind in (Settings, *chapters) for each in described(kind)]
    assert {"kernels.axes.from", "measure.search.mode", "timeline.size"} <= {n for n, _ in found}
    assert [name for name, meaning in found if not meaning.endswith(".")] == []


def test_the_schema_of_the_documentation_is_that_of_the_code() -> None:
    text = (ROOT / "workflow/schemas/config.schema.json").read_text(encoding="utf-8")
    assert json.loads(text) == json_schema()
    assert json_schema()["properties"]["seed"]["maximum"] == 2**32 - 1


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("seeed", 1, ["'seeed'", "Did you mean 'seed'?"]),
        ("measure.warmpu", 1, ["'measure.warmpu'", "Did you mean 'warmup'?", "cell_budget_s"]),
        (f"{COPY}.dtype", ["float"], [f"'{COPY}.dtype'", "Did you mean 'dtypes'?"]),
        ("kernels.copy2d_coalesce", {}, ["copy2d_coalesced", "Did you mean"]),
        (f"{COPY}.sizes", [-512], [f"'{COPY}.sizes' holds -512; a size must be at least 1."]),
        (f"{COPY}.sizes", [[64, 0]], [f"{COPY}.sizes' holds [64, 0];", "at least 1."]),
        (f"{COPY}.sizes", ["512"], [f"'{COPY}.sizes.0' is '512';", "width]; remove the quotes."]),
        (f"{COPY}.sizes", ["5 GB"], ["or [height, width]; write a plain number, without 'GB'."]),
        (DOT, {"sizes": [-1]}, [f"'{DOT}.sizes' holds -1; a size must be at least 0."]),
        (DOT, {"axes": {"chunk": "4"}}, [f"{DOT}.axes.chunk' is '4'", "list of these; remove the"]),
        ("measure.cell_budget_s", "2e-1", ["a finite number; write 0.2."]),
        ("seed", "1e3", ["a whole number; write 1000."]),
        ("device", "cuda:0", ["'cuda:0'; allowed: all (every CUDA", "or the index of one device."]),
        ("device_memory_gib", "80", ["finite number or null; remove the quotes."]),
        (DOT, {"sizes": [0, [1, 0]]}, [f"{DOT}.sizes", "1 x 0 is given twice"]),
        (DOT, {"axes": {"host_percent": 150}}, [f"{DOT}.axes.host_percent", "150", "at most 100"]),
        (DOT, {"sizes": [{"of_cache": 4}]}, [f"'{DOT}.sizes' follows the device's cache"]),
        (
            DOT,
            {"timing_modes": ["isolated"]},
            [f"'{DOT}.timing_modes' must be [batched] of a kernel that the host feeds"],
        ),
        (f"{COPY}.sizes", [[64]], [f"{COPY}.sizes.0", "2 entries"]),
        (f"{COPY}.sizes", [64, [64, 64]], [f"{COPY}.sizes", "64 x 64 is given twice"]),
        (f"{COPY}.dtypes", ["half"], [f"{COPY}.dtypes", "'half'", "float, double, float3"]),
        (f"{COPY}.dtypes", ["float", "float"], [f"{COPY}.dtypes", "twice"]),
        (f"{COPY}.variants", ["fast"], [f"{COPY}.variants", "'fast'", "element, tile32"]),
        (COPY, 3, [COPY, "3", "a mapping (lines of 'key: value') or null"]),
        ("kernels", {"copy2d_coalesced": None}, ["kernels", "at least one"]),
        ("kernels", {3: {}}, ["kernels", "3", "a key must be a text"]),
        (
            "kernels.b",
            {"kernel": "copy2"},
            ["kernels.b.kernel", "'copy2'", "folder that contains", "to the key kernel_folders"],
        ),
        ("kernels.b c", {"kernel": "tex2d_sum"}, ["kernels.b c", "letters, digits and '_'"]),
        (
            "kernels.b",
            {"kernel": "tex2d_sum", "sizes": [64, 512]},
            ["kernels.tex2d_sum.sizes", "kernels.b sweeps tex2d_sum at 512 x 512", "twice"],
        ),
        (
            f"{TEX}.variants",
            ["block-lineer-clamp"],
            [f"{TEX}.variants", "nearest of the 67", "block-linear-clamp"],
        ),
        (AXIS, [], [AXIS, "empty", "at least 1 entry"]),
        (AXIS, {"from": 5, "to": 2}, [AXIS, "from 5 to 2", "at least 'from'"]),
        (AXIS, {"from": 5}, [f"{AXIS}.to", "missing"]),
        (AXIS, {"to_resident": math.nan, "points": 2}, [f"{AXIS}.to_resident", "finite"]),
        (AXIS, {"from": 1.0, "to": 9}, [f"{AXIS}.from", "whole number"]),
        (AXIS, [1, "x", "y"], [f"{AXIS}.1", "'x'", "{to_resident, points}"]),
        ("backend", "CUDA", ["backend", "'CUDA'", "auto, cuda, opencl"]),
        ("run", "a\n", ["run", "letters, digits"]),
        ("seed", True, ["seed", "true", "whole number"]),
        ("strict", 1, ["strict", "true or false"]),
        ("studies", ["machines"], ["studies.0", "'machines'", "allowed are counters, energy"]),
        ("studies", ["counters", "counters"], ["studies", "must not appear twice"]),
        ("measure.lock_clocks", "max", ["measure.lock_clocks", "'max'", "base", "in MHz"]),
        ("device_memory_gib", 0, ["device_memory_gib", "more than 0"]),
        ("device_memory_gib", 1e300, ["device_memory_gib", "at most"]),
        ("measure.relative_half_width", math.nan, ["measure.relative_half_width", "finite"]),
        ("measure.min_samples", 5, ["measure.min_samples", "at least 6"]),
        ("measure.max_samples", 6, ["measure.max_samples is 6", "min_samples", str(MIN_SAMPLES)]),
        ("kernel_folders", ["nowhere"], ["kernel_folders", "nowhere", "not a folder"]),
        ("only", [], ["only", "empty"]),
        ("only", ["tex2d_sun"], ["only", "no sweep 'tex2d_sun'", "Did you mean 'tex2d_sum'?"]),
        ("only", ["mine"], ["only", "add 'mine: {}' under kernels", "to the key kernel_folders"]),
        ("dataset", "nowhere", ["dataset", "'nowhere'", "Parquet"]),
        ("dataset", "x" * 5000, ["dataset", "cannot be read"]),
        ("dataset", "", ["dataset", "not be empty"]),
    ],
)
def test_a_bad_value_is_refused_by_its_key(path: str, value: Any, words: list[str]) -> None:
    text = sentence(changed(path, value))
    assert [w for w in words if w not in text] == []


def test_only_the_named_sweeps_run_and_share_no_cell() -> None:
    assert list(load_config(changed("only", ["tex2d_sum", "copy2d_coalesced"]), ROOT).sweeps) == [
        "copy2d_coalesced",
        "tex2d_sum",
    ]
    wrong = {**changed("kernels.copy2d", {}), "only": ["tex2d_sum"]}
    assert "no such kernel as 'copy2d'" in sentence(wrong)
    left_out = {**changed("kernels.stream", None), "only": ["stream"]}
    assert "leaves the sweep out; write 'stream: {}'" in sentence(left_out)
    assert list(load_config({**with_second(), "only": ["b"]}, ROOT).sweeps) == ["b"]
    other = {**FIRST, "kernel": "dot_square"}
    assert set(load_config(changed("kernels", {"a": FIRST, "b": other}), ROOT).sweeps) == {"a", "b"}


@pytest.mark.parametrize("name", ["kernels", "chapters"])
def test_a_missing_key_without_a_default_is_named(name: str) -> None:
    text = sentence({k: v for k, v in DEFAULT.items() if k != name})
    assert text == f"Config key '{name}' is missing."


def test_a_key_that_is_left_out_has_its_default() -> None:
    least = {"kernels": {"stencil5": {}}, "chapters": None, "measure": {"search": {"mode": "race"}}}
    config = load_config(least, ROOT)
    assert config.settings.seed == DEFAULT["seed"]
    assert config.settings.measure == Measure(search=Search(mode="race"))


def test_what_is_taken_is_what_was_written(tmp_path: Path) -> None:
    def taken(path: str, value: Any) -> RunConfig:
        return load_config(changed(path, value), ROOT)

    assert set(taken(COPY, None).sweeps) == set(DEFAULTS.sweeps) - {"copy2d_coalesced"}
    # One axis given leaves the other its default.
    axes = taken(f"{COPY}.axes", {"block_x": 8}).sweeps["copy2d_coalesced"].axes
    assert axes == {"block_x": 8, "block_y": {"from": 4, "to": 64, "step": 4}}
    # Equal bounds are no fault.
    measure = {**DEFAULT["measure"], "min_samples": 9, "max_samples": 9}
    assert taken("measure", measure).settings.measure.max_samples == 9
    one = {"from": 5, "to": 5}
    assert taken(AXIS, one).sweeps["block_eq_partition"].axes["num_partition"] == one
    assert taken("device_memory_gib", 1.5).device_memory == 1536 * 1024 * 1024
    (tmp_path / "x.parquet").touch()
    assert taken("dataset", str(tmp_path)).dataset == tmp_path
    # Snakemake would take this name for one with wildcards.
    (tmp_path / "a{sweep}").mkdir()
    (tmp_path / "a{sweep}/x.parquet").touch()
    text = sentence(changed("dataset", str(tmp_path)))
    assert text.startswith("dataset: ")
    assert "a{sweep}/x.parquet' has '{' or '}' in its name" in text


def test_a_folder_of_runs_or_a_run_is_not_a_recorded_data_set(tmp_path: Path) -> None:
    run = tmp_path / "results/mine"
    (run / "cells").mkdir(parents=True)
    (run / "cells/x.parquet").touch()
    (run / PLAN_FILE).touch()
    assert load_config(changed("dataset", str(run / "cells")), ROOT).dataset == run / "cells"
    text = sentence(changed("dataset", str(run)))
    assert "is the folder of a run" in text
    assert "results/local/cells" in text
    text = sentence(changed("dataset", str(run.parent)))
    assert text.endswith(f"name the shards of one, such as '{run / 'cells'}'.")
    text = sentence(changed("dataset", "reports/reference"))
    assert text.endswith("such as 'reports/reference/nvidia-h200'.")


FIRST = {
    "kernel": "dot_streamed",
    "dtypes": ["float"],
    "variants": ["pinned-pooled"],
    "sizes": [64, 128],
    "axes": {
        "streams": [1, 4],
        "min_per_stream": 4096,
        "chunk": {"from": 0, "to": 20, "step": 10},
        "blocks_per_stream": 32,
        "threads": 256,
        "host_percent": 0,
    },
}


def with_second(**apart: Any) -> dict[str, Any]:
    """The default with two sweeps of a kernel, of which the second differs in this alone."""
    return changed("kernels", {"a": FIRST, "b": {**FIRST, **apart}})


def test_sweeps_of_one_kernel_that_share_a_cell_are_refused() -> None:
    assert sentence(with_second(sizes=[[1, 128], 256])) == (
        "kernels.b.sizes: kernels.a sweeps dot_streamed at 1 x 128, too; no cell may be "
        "measured twice: two sweeps of one kernel must have no size in common, or else no type, no "
        "variant, no cache state, no timing mode or no value of one axis."
    )


RESIDENT = load_kernel(ROOT / "kernels/dot_resident")
FEW = st.lists(st.integers(1, 4), min_size=1, max_size=2)
RANGE = st.builds(
    lambda start, length, step: {"from": start, "to": start + length, "step": step},
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 3),
)
EXPLICIT = st.integers(1, 4) | RANGE | st.lists(st.integers(1, 4) | RANGE, min_size=1, max_size=2)
ASKED = st.builds(
    lambda waves, points: {"to_resident": waves, "points": points},
    st.sampled_from([0.5, 1.0, 2.0]),
    st.integers(1, 3),
)


def subset(*values: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), min_size=1, unique=True).map(tuple)


def sweeps_of(grid: st.SearchStrategy[Any]) -> st.SearchStrategy[SweepConfig]:
    """Small sweeps of one kernel."""
    return st.builds(
        SweepConfig,
        folder=st.just(RESIDENT),
        dtypes=subset("float", "double"),
        variants=subset("packs", "others"),
        sizes=FEW.map(lambda sizes: tuple(Problem(1, n) for n in sorted(set(sizes)))),
        cache_states=subset("warm", "flushed"),
        axes=st.fixed_dictionaries({"threads": EXPLICIT, "grid": grid, "unroll": EXPLICIT}),
    )


def shares_a_cell(one: SweepConfig, other: SweepConfig, residency: Residency) -> bool:
    mine, its = ({c.key for c in cells_of(s, residency)} for s in (one, other))
    return not mine.isdisjoint(its)


@given(one=sweeps_of(EXPLICIT), other=sweeps_of(EXPLICIT))
def test_sweeps_are_apart_where_no_cell_is_shared(one: SweepConfig, other: SweepConfig) -> None:
    shared = shares_a_cell(one, other, Residency(132, 4))
    assert _apart(one, other) == _apart(other, one) == (not shared)


@given(
    one=sweeps_of(ASKED | st.lists(ASKED | EXPLICIT, min_size=1, max_size=2)),
    other=sweeps_of(EXPLICIT | ASKED),
    multiprocessors=st.integers(1, 4),
    resident_blocks=st.integers(1, 2),
)
def test_sweeps_that_share_a_cell_on_some_device_are_never_apart(
    one: SweepConfig, other: SweepConfig, multiprocessors: int, resident_blocks: int
) -> None:
    if shares_a_cell(one, other, Residency(multiprocessors, resident_blocks)):
        assert not _apart(one, other)
        assert not _apart(other, one)


def test_a_device_holds_all_arrays_of_a_cell() -> None:
    raw = {**changed(DOT, {"sizes": [1000]}), "only": ["dot_streamed"]}
    with pytest.raises(
        ConfigError, match=r"streamed_dot\.timeline\..*\.size: 1 x 4194304 double needs"
    ):
        check_memory(load_config(raw, ROOT), 16000, 8000)
    raw["chapters"] = {**raw["chapters"], "streamed_dot": {}}
    config = load_config(raw, ROOT)
    check_memory(config, 16000, 8000)
    for memory, allocation in ((15999, 8000), (16000, 7999)):
        with pytest.raises(ConfigError, match=r"dot_streamed\.sizes: 1 x 1000 double needs"):
            check_memory(config, memory, allocation)
    host = load_config({**changed("kernels.dot_host", {}), "only": ["dot_host"]}, ROOT)
    check_memory(host, 1, 1)
    wanted = {**changed(f"{COPY}.sizes", [[2048, 1024]]), "only": ["copy2d_coalesced"]}
    config = load_config(wanted, ROOT)
    need = 3 * 2048 * 1024 * 12  # input, output and expected output of float3
    check_memory(config, need, need)
    with pytest.raises(ConfigError, match=r"copy2d_coalesced\.sizes: 2048 x 1024 float3 needs"):
        check_memory(config, need - 1, need)
    check_memory(config, need, need // 3)
    with pytest.raises(ConfigError, match=r"a buffer of 0\.02 GiB, .* 0\.02 GiB.* smaller size"):
        check_memory(config, need, need // 3 - 1)


def test_odd_keys_and_long_values_are_refused_in_few_words() -> None:
    assert "Unknown config key" in sentence({**DEFAULT, 1: 2, "zz": 3, None: 4})
    assert len(sentence(changed("backend", "x" * 5000))) < 200
    assert "'" + "x" * 50 + "'" in sentence(changed("backend", "x" * 50))


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 2, 7, 64, 10**30]),
    st.sampled_from([math.nan, math.inf, -math.inf, -1.5, 0.5, 7.0, 1e308]),
    st.text(st.characters(exclude_characters="/."), max_size=6),
    st.sampled_from(["auto", "float", "copy2d_coalesced", "\0", "x" * 300, b"x"]),
    st.just(datetime.date(2024, 1, 1)),
)
VALUES = st.recursive(
    JUNK,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["from", "to", "step", "to_resident", "points", "sizes", "axes", 3]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key or index) in a configuration."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in list(inner):
        yield value, key
        if isinstance(child, dict | list):
            yield from places(child)


@given(data=st.data())
def test_any_configuration_is_either_taken_or_refused_by_a_sentence(data: st.DataObject) -> None:
    config = copy.deepcopy(DEFAULT)
    for _ in range(data.draw(st.integers(1, 3))):
        found = list(places(config))
        if not found:
            break
        container, key = found[data.draw(st.integers(0, len(found) - 1))]
        action = data.draw(st.sampled_from(["drop", "replace", "replace", "add"]))
        if action == "drop":
            del container[key]
        elif action == "replace" or isinstance(container, list):
            container[key] = data.draw(VALUES)
        else:
            container[data.draw(st.text(max_size=4) | st.sampled_from([None, 1, 2.5, True]))] = (
                data.draw(VALUES)
            )
    try:
        taken = load_config(config, ROOT)
    except ConfigError as err:
        assert len(str(err).splitlines()) == 1  # noqa: PT017
        return
    assert plan_shards(taken)


def test_a_data_set_of_kernels_that_are_not_swept_is_refused() -> None:
    recorded = {"dataset": "reports/reference/nvidia-h200"}
    full, dots = (
        yaml.safe_load((ROOT / f"config/{name}.yaml").read_text(encoding="utf-8"))
        for name in ("full", "dots")
    )
    alone = merged(merged(default_config(), full, ROOT), recorded, ROOT)
    text = sentence(alone)
    assert "dot_cublas" in text
    assert "--configfile" in text
    assert load_config(merged(alone, {**dots, "only": None}, ROOT), ROOT).dataset is not None
    of_one = {"dataset": "reports/reference/nvidia-h200/copy2d_coalesced"}
    assert load_config(merged(alone, of_one, ROOT), ROOT).dataset is not None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kernel_folders", ["~/nowhere"]),
        ("chapter_folders", ["~/nowhere"]),
        ("dataset", "~/nowhere"),
        ("history", "~/nowhere"),
        ("before", "~/nowhere"),
        ("noise_runs", ["~/nowhere", str(ROOT)]),
        ("chapters.streamed_dot.recorded", "~/nowhere"),
    ],
)
def test_a_folder_may_be_named_by_the_users_home(
    key: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = changed(key, value)
    if key in ("before", "noise_runs"):
        config |= {"after": str(ROOT), **({} if key == "before" else {"before": str(ROOT)})}
    if key.startswith("chapters"):
        config |= {"dataset": "reports/reference/nvidia-h200"}
    assert "nowhere" in sentence(config)
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / "empty.parquet").touch()
    said = ""
    try:
        load_config(config, ROOT)
    except ConfigError as err:
        said = str(err)
    assert "nowhere" not in said


@pytest.mark.parametrize(
    ("old", "sentence"),
    [
        ({"again": "all"}, "Unknown config key 'again', now called 'remeasure'."),
        ({"same": []}, "Unknown config key 'same', now called 'noise_runs'."),
        ({"delta": 0.01}, "Unknown config key 'delta', now called 'threshold'."),
        ({"guard": True}, "Unknown config key 'guard', now called 'fail_on_regression'."),
        (
            {"measure": {"search": {"most_share": 0.5}}},
            "Unknown config key 'measure.search.most_share', now called 'max_share'.",
        ),
        (
            {"chapters": {"tesla_c1060": {"simulate_anew": True}}},
            "Unknown config key 'chapters.tesla_c1060.simulate_anew', now called "
            "'rerun_simulation'.",
        ),
        ({"remeasure": "faults"}, "Config key 'remeasure' is 'faults', now called 'failed'."),
        (
            {"remeasure": ["timeout", "false_time"]},
            "Config key 'remeasure.1' is 'false_time', now called 'timing_mismatch'.",
        ),
        (
            {"remeasure": ["lost_device"]},
            "Config key 'remeasure.0' is 'lost_device', now called 'device_lost'.",
        ),
        (
            {"kernels": {"copy2d_coalesced": {"launch": ["isolated"]}}},
            "Unknown config key 'kernels.copy2d_coalesced.launch', now called 'timing_modes'.",
        ),
        (
            {"kernels": {"copy2d_coalesced": {"timing_modes": ["back_to_back"]}}},
            "Config key 'kernels.copy2d_coalesced.timing_modes.0' is 'back_to_back', now called "
            "'batched'.",
        ),
    ],
)
def test_an_old_name(raw_config: dict[str, Any], old: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(raw_config | old, ROOT)
    assert str(refused.value) == sentence
