"""Studies: which cells they are of, what is refused and in which words, and what a job is told."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from gpushmoo.core.space import Cell, Problem
from gpushmoo.planning.config import default_config, load_config
from gpushmoo.planning.config_schema import ConfigError
from gpushmoo.workloads.loader import KernelFolder, load_kernel
from hypothesis import given
from hypothesis import strategies as st
from streamed_dot.chapter import StreamedPlan
from streamed_dot.numerics import Study
from streamed_dot.studies import (
    MOST_TIMELINES,
    Studies,
    StudyError,
    cell_of,
    cell_params,
    read_studies,
)

KERNELS = ("dot_streamed", "dot_square", "dot_host", "dot_resident", "copy2d_coalesced")
FOLDERS = {name: load_kernel(ROOT / "kernels" / name) for name in KERNELS}
DEFAULT = default_config()
AXES = {
    "streams": 4,
    "min_per_stream": 100,
    "chunk": 0,
    "blocks_per_stream": 8,
    "threads": 64,
    "host_percent": 0,
}
SPEC: dict[str, Any] = {
    "kernel": "dot_streamed",
    "dtype": "float",
    "variant": "pageable-fresh",
    "size": 1000,
    "axes": AXES,
}
CHAPTER = "chapters.streamed_dot"
KEY = f"{CHAPTER}.timeline.mine"


def studies_of(
    timeline: dict[str, Any] | None = None,
    errors: dict[str, Any] | None = None,
    recorded: str | None = None,
    folders: dict[str, KernelFolder] = FOLDERS,
    root: Path = ROOT,
) -> Studies:
    raw = {"timeline": timeline, "errors": errors, "recorded": recorded}
    return read_studies(raw, folders, seed=7, root=root)


def with_axes(**changed: int) -> dict[str, Any]:
    return {**SPEC, "axes": {**AXES, **changed}}


# What is taken


def test_a_timeline_is_of_the_cell_that_is_asked_for() -> None:
    found = studies_of({"mine": SPEC}).timelines["mine"]
    assert found == Cell(
        "dot_streamed", "float", "pageable-fresh", Problem(1, 1000), tuple(sorted(AXES.items()))
    )
    assert {name: found[name] for name in AXES} == AXES


def test_timelines_keep_their_order_and_are_of_any_streamed_kernel() -> None:
    every = {"b": SPEC, "a": {**SPEC, "kernel": "dot_square"}, "c": with_axes(host_percent=99)}
    found = studies_of(every).timelines
    assert list(found) == ["b", "a", "c"]
    assert [c.kernel for c in found.values()] == ["dot_streamed", "dot_square", "dot_streamed"]


def test_null_leaves_a_timeline_or_all_out() -> None:
    assert list(studies_of({"mine": None, "other": SPEC}).timelines) == ["other"]
    assert studies_of({"mine": None}).timelines == {}
    assert studies_of() == Studies({}, None, None, None)


def test_a_kernel_that_is_not_swept_leaves_its_timelines_out() -> None:
    asked = {"mine": SPEC, "squares": {**SPEC, "kernel": "dot_square"}}
    only = {"dot_square": FOLDERS["dot_square"]}
    assert list(studies_of(asked, folders=only).timelines) == ["squares"]
    # Then nothing else of it matters either.
    assert studies_of({"mine": {**SPEC, "variant": "fast"}}, folders=only).timelines == {}


def test_as_many_timelines_as_have_room_are_drawn() -> None:
    most = {f"t{i}": with_axes(streams=1 + i) for i in range(MOST_TIMELINES)}
    assert len(studies_of(most).timelines) == MOST_TIMELINES
    # Those left out take no room.
    assert len(studies_of({**most, "x": None}).timelines) == MOST_TIMELINES


def test_bounds_of_axes_are_taken() -> None:
    least = with_axes(streams=1, min_per_stream=1, chunk=0, host_percent=0)
    most = with_axes(streams=2**28, chunk=2**28, host_percent=99)
    found = studies_of({"least": least, "most": most}).timelines
    assert (found["least"]["chunk"], found["most"]["host_percent"]) == (0, 99)


def test_errors_are_studied_on_the_data_that_are_asked_for() -> None:
    errors = {"sizes": [3, 0, 64], "conditions": [10, 1.0e4], "condition_size": 128}
    found = studies_of(errors=errors).errors
    assert found == Study(sizes=(3, 0, 64), conditions=(10.0, 1.0e4), length=128, seed=7)
    assert all(isinstance(c, float) for c in found.conditions)


def test_recorded_studies_lie_in_a_folder_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "file").touch()
    assert studies_of(recorded="here", root=tmp_path).recorded == tmp_path / "here"
    for name in ("nowhere", "file"):
        with pytest.raises(StudyError, match=rf"streamed_dot\.recorded: '{name}' is not a folder$"):
            studies_of(recorded=name, root=tmp_path)


# What is refused


@pytest.mark.parametrize(
    ("spec", "key", "words"),
    [
        ({**SPEC, "kernel": "dot_host"}, "kernel", ["'dot_host'", "streams nothing"]),
        ({**SPEC, "kernel": "dot_resident"}, "kernel", ["'dot_resident'", "streams nothing"]),
        (
            {**SPEC, "kernel": "copy2d_coalesced"},
            "kernel",
            ["'copy2d_coalesced'", "streams nothing"],
        ),
        ({**SPEC, "dtype": "half"}, "dtype", ["'half'", "float, double"]),
        ({**SPEC, "dtype": "float3"}, "dtype", ["'float3'"]),
        ({**SPEC, "variant": "pinned"}, "variant", ["'pinned'", "pinned-pooled, pinned-fresh"]),
        ({**SPEC, "axes": AXES | {"block_x": 8}}, "axes", ["streams, ", "threads", "one value"]),
        ({**SPEC, "axes": {"streams": 4}}, "axes", ["streams, ", "threads", "one value"]),
        ({**SPEC, "axes": {}}, "axes", ["one value"]),
        (with_axes(streams=0), "axes.streams", ["is 0", "from 1 to"]),
        (with_axes(threads=2**28 + 1), "axes.threads", [str(2**28 + 1), f"to {2**28}"]),
        (with_axes(chunk=-1), "axes.chunk", ["is -1", "from 0 to"]),
        (with_axes(host_percent=101), "axes.host_percent", ["is 101", "from 0 to 100"]),
        (with_axes(host_percent=100), "axes.host_percent", ["is 100", "nothing is streamed"]),
        (with_axes(threads=1025), "axes", ["1025 threads a block", "takes 1024"]),
    ],
)
def test_a_cell_that_cannot_be_traced_is_refused_by_a_clause_that_names_the_key(
    spec: dict[str, Any], key: str, words: list[str]
) -> None:
    with pytest.raises(StudyError) as caught:
        studies_of({"other": SPEC, "mine": spec})
    text = str(caught.value)
    assert text.startswith((f"{KEY}.{key}:", f"{KEY}.{key} is "))
    assert [w for w in words if w not in text] == []
    # What goes on as a sentence has no end of its own.
    assert text[-1] not in ".?!\n"
    assert len(text.splitlines()) == 1


# What a job is told


CELLS = st.builds(
    Cell,
    kernel=st.sampled_from(["dot_streamed", "dot_square"]),
    dtype=st.sampled_from(["float", "double"]),
    variant=st.text(min_size=1, max_size=8),
    problem=st.integers(1, 2**28).map(lambda n: Problem(1, n)),
    params=st.dictionaries(st.text(max_size=6), st.integers(0, 2**28), max_size=6).map(
        lambda axes: tuple(sorted(axes.items()))
    ),
)


@given(CELLS)
def test_a_cell_survives_being_written_down(cell: Cell) -> None:
    params = cell_params(cell)
    # Snakemake stores them as text.
    back = cell_of(json.loads(json.dumps(params)))
    assert back == cell
    assert back.key == cell.key
    assert list(params) == sorted(params)


# In a configuration

TIMELINES = [
    f"{CHAPTER}.timeline.{name}" for name in DEFAULT["chapters"]["streamed_dot"]["timeline"]
]


def planned(raw_config: dict[str, Any]) -> StreamedPlan:
    plan = load_config(raw_config, ROOT).chapters["streamed_dot"].plan
    assert isinstance(plan, StreamedPlan)
    return plan


def refusal(raw_config: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(raw_config, ROOT)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert text.endswith(".")
    assert not text.endswith("..")
    return text


def test_the_default_configuration_has_studies_of_streamed_dot_products(
    raw_config: dict[str, Any],
) -> None:
    plan = planned(raw_config)
    assert list(plan.cells) == TIMELINES
    assert {c.kernel for c in plan.cells.values()} == {"dot_streamed"}
    assert plan.jobs is not None
    errors = DEFAULT["chapters"]["streamed_dot"]["errors"]
    assert plan.jobs["errors"]["study"]["sizes"] == errors["sizes"]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("timeline", {"mine": {**SPEC, "dtype": "half"}}, [f"{KEY}.dtype", "'half'"]),
        ("timeline", {"mine": with_axes(streams=-1)}, [f"{KEY}.axes.streams", "-1", "at least 0"]),
        ("timeline", {"mine": with_axes(chunk=2**28 + 1)}, [f"{KEY}.axes.chunk", "at most"]),
        ("timeline", {"mine": {**SPEC, "axes": [1]}}, [f"{KEY}.axes", "a mapping"]),
        ("timeline", {"mine": {**SPEC, "size": 0}}, [f"{KEY}.size", "at least 1"]),
        ("timeline", {"mine": {**SPEC, "size": 2**28 + 1}}, [f"{KEY}.size", "at most"]),
        ("timeline", {"mine": {**SPEC, "size": [1, 2]}}, [f"{KEY}.size", "whole number"]),
        ("timeline", {"mine": {**SPEC, "cache": "warm"}}, [f"{KEY}.cache", "allowed here"]),
        ("timeline", {"mine": {"kernel": "dot_streamed"}}, [f"{KEY}.dtype", "missing"]),
        (
            "timeline",
            {f"t{i}": SPEC for i in range(4)},
            ["streamed_dot.timeline: 4 cells; a figure has room for 3."],
        ),
        ("timeline", {3: SPEC}, ["streamed_dot.timeline", "a key must be a text"]),
        ("timeline", [], ["streamed_dot.timeline", "a mapping (lines of 'key: value') or null"]),
        ("errors", {"sizes": [1]}, ["streamed_dot.errors.conditions", "missing"]),
        ("errors.sizes", [], ["streamed_dot.errors.sizes", "at least 1 entry"]),
        ("errors.sizes", [0], ["streamed_dot.errors.sizes.0", "at least 1"]),
        ("errors.sizes", [64, 64], ["streamed_dot.errors.sizes", "twice"]),
        ("errors.conditions", [1.5], ["streamed_dot.errors.conditions.0", "at least 2"]),
        ("errors.conditions", [1e26], ["streamed_dot.errors.conditions.0", "at most"]),
        ("errors.conditions", [math.nan], ["streamed_dot.errors.conditions.0", "finite"]),
        ("errors.condition_size", 63, ["streamed_dot.errors.condition_size", "at least 64"]),
        (
            "errors",
            True,
            ["streamed_dot.errors", "true", "a mapping (lines of"],
        ),
        ("recorded", "", ["streamed_dot.recorded", "not be empty"]),
        ("recorded", 3, ["streamed_dot.recorded", "a text or null"]),
    ],
)
def test_a_fault_of_a_study_is_one_sentence_that_names_the_key(
    raw_config: dict[str, Any], path: str, value: Any, words: list[str]
) -> None:
    *parents, last = path.split(".")
    place = raw_config["chapters"]["streamed_dot"]
    for name in parents:
        place = place[name]
    place[last] = value
    text = refusal(raw_config)
    assert [w for w in words if w not in text] == []


def test_a_misspelt_key_of_the_studies_is_named_beside_the_right_one(
    raw_config: dict[str, Any],
) -> None:
    raw_config["chapters"]["streamed_dot"]["recorder"] = "x"
    with pytest.raises(
        ConfigError, match=r"'chapters\.streamed_dot\.recorder'.* Did you mean 'recorded'\?$"
    ):
        load_config(raw_config, ROOT)


@pytest.mark.parametrize("key", ["timeline", "errors"])
def test_a_study_that_is_not_mentioned_is_left_out(raw_config: dict[str, Any], key: str) -> None:
    del raw_config["chapters"]["streamed_dot"][key]
    assert key not in (planned(raw_config).files or {})


def test_conditions_may_be_none_at_all(raw_config: dict[str, Any]) -> None:
    raw_config["chapters"]["streamed_dot"]["errors"]["conditions"] = []
    jobs = planned(raw_config).jobs
    assert jobs is not None
    assert jobs["errors"]["study"]["conditions"] == []


def test_sweeps_that_do_not_run_have_no_studies(raw_config: dict[str, Any]) -> None:
    raw_config["only"] = ["dot_host", "copy2d_coalesced"]
    assert planned(raw_config) == StreamedPlan()
    raw_config["only"] = ["dot_streamed"]
    assert list(planned(raw_config).cells) == TIMELINES


def test_a_sweep_of_another_name_stands_for_its_kernel(raw_config: dict[str, Any]) -> None:
    raw_config["kernels"] = {"mine": {"kernel": "dot_streamed", "sizes": [64]}}
    assert list(planned(raw_config).cells) == TIMELINES


def test_recorded_studies_are_looked_for_beside_a_recorded_dataset_only(
    raw_config: dict[str, Any], tmp_path: Path
) -> None:
    raw_config["chapters"]["streamed_dot"]["recorded"] = "nowhere"
    assert planned(raw_config).measured
    (tmp_path / "x.parquet").touch()
    raw_config["dataset"] = str(tmp_path)
    assert "streamed_dot.recorded: 'nowhere' is not a folder." in refusal(raw_config)
    raw_config["chapters"]["streamed_dot"]["recorded"] = str(tmp_path)
    assert planned(raw_config).files == {}
    (tmp_path / "errors.parquet").touch()
    files = planned(raw_config).files or {}
    assert {name: Path(file).resolve() for name, file in files.items()} == {
        "errors": tmp_path / "errors.parquet"
    }
