"""What the rule files ask about figures, the ceiling, studies, and what a job depends on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, record
from energetic import write_energy
from gpushmoo.planning.config_schema import ConfigError
from gpushmoo.planning.figure_plan import figure_labels, figure_note
from gpushmoo.planning.flow import COUNTED, Flow
from gpushmoo.storage.wholefile import write_json
from streamed_dot.chapter import ERRORS, RIVALS, TIMELINE, StreamedPlan, cell_of


def flow_of(raw: dict[str, Any], kernels: dict[str, Any]) -> Flow:
    raw["kernels"] = kernels
    return Flow(raw, ask_device=False)


def params_of(flow: Flow, name: str) -> dict[str, Any]:
    return flow.figure_params(SimpleNamespace(figure=name))


@pytest.fixture
def flow(raw_config: dict[str, Any]) -> Flow:
    kernels = {
        "block_eq_partition": {"sizes": [512]},
        "copy2d_coalesced": {
            "sizes": [256, [48, 70]],
            "dtypes": ["float"],
            "cache": ["warm", "flushed"],
        },
        "global_copy": {"sizes": [256, 512, 1024, 2048]},
        "global_load": {"sizes": [256, 512, 1024, 2048]},
        "global_store": {"sizes": [256, 512, 1024, 2048]},
    }
    return flow_of(raw_config, kernels)


def test_the_largest_problem_is_drawn_below_the_headings_of_the_kernels_views(
    flow: Flow, raw_config: dict[str, Any]
) -> None:
    assert [f.name for f in flow.figures] == [
        "curve-block_eq_partition-num_partition-512x512-warm",
        "heatmap-copy2d_coalesced-block_x-block_y-256x256-warm",
        "workingset-global_copy",
        "workingset-global_load",
        "workingset-global_store",
    ]
    assert all(f"{flow.results}/figures/{f.name}.svg" in flow.figure_files for f in flow.figures)
    assert flow.ceiling_kernels == {"global_load": "load", "global_store": "store"}
    told = flow.report_params(SimpleNamespace())
    assert {title: len(files) for title, files in told["sections"].items()} == {
        "Bandwidth over one parameter": 1,
        "Block shape": 1,
        "Ceiling and caches": 3,
    }
    # Few sizes are left to the table.
    few = flow_of(raw_config, {"global_copy": {"sizes": [256, 512, 1024]}})
    assert few.figures == []


IMAGES = {
    "tex2d_sum": {"sizes": [64], "dtypes": ["float"]},
    "large": {"kernel": "tex2d_sum", "sizes": [128], "dtypes": ["float", "unorm8"]},
    "modes": {
        "kernel": "tex2d_sum",
        "sizes": [32],
        "dtypes": ["float"],
        "variants": ["block-linear-wrap", "block-point-clamp"],
    },
}


def test_sweeps_of_one_kernel_have_shards_of_their_own(raw_config: dict[str, Any]) -> None:
    flow = flow_of(raw_config, IMAGES)
    assert {f.split("cells/")[1].split("/")[0] for f in flow.shard_files} == set(IMAGES)
    asked = SimpleNamespace(sweep="large", dtype="unorm8", shard="0000-of-0008")
    params = flow.measure_params(asked)
    assert (params["folder"], params["sizes"]) == ("kernels/tex2d_sum", [[128, 128]])
    assert list(flow.report_params(asked)["kernels"]) == ["tex2d_sum"]


def test_a_figure_is_told_which_cells_it_shows(flow: Flow) -> None:
    assert params_of(flow, "heatmap-copy2d_coalesced-block_x-block_y-256x256-warm") == {
        "where": {
            "kernel": "copy2d_coalesced",
            "launch_kind": "back_to_back",
            "height": 256,
            "width": 256,
            "cache_state": "warm",
        },
        "named": ["cache_state"],
        "folder": "kernels/copy2d_coalesced",
        "view": "heatmap-block_x-block_y",
        "dtypes": ["float"],
        "controls": [],
    }
    assert params_of(flow, "workingset-global_copy")["where"] == {
        "kernel": "global_copy",
        "launch_kind": "back_to_back",
    }
    curve = SimpleNamespace(figure="curve-block_eq_partition-num_partition-512x512-warm")
    assert set(flow.figure_inputs(curve)) == {"dataset", "ceiling"}


def test_figures_are_drawn_from_the_model_of_the_device_where_there_can_be_one(
    raw_config: dict[str, Any],
) -> None:
    flow = Flow(raw_config | {"backend": "cuda"}, ask_device=False)
    [curve, *_] = [f.name for f in flow.figures if f.name.startswith("curve")]
    files = flow.figure_inputs(SimpleNamespace(figure=curve))
    assert [files["device"]] == flow.device_cells
    assert files["device"].endswith("model/device.parquet")


def test_a_shmoo_is_told_which_variants_are_controls(raw_config: dict[str, Any]) -> None:
    params = params_of(flow_of(raw_config, IMAGES), "heatmap-tex2d_sum-block_x-block_y-64x64-warm")
    assert "block-point-clamp-written" in params["controls"]
    assert "block-point-clamp" not in params["controls"]


# Dot products and studies

DOTS = {
    "dot_streamed": {"sizes": [64]},
    "dot_square": {"sizes": [64]},
    "dot_host": {"sizes": [64]},
    "dot_resident": {"sizes": [64]},
}
STUDIES = [TIMELINE, ERRORS, RIVALS]


def plan_of(flow: Flow) -> StreamedPlan:
    plan = flow.plan_of("streamed_dot")
    assert isinstance(plan, StreamedPlan)
    return plan


def studies(flow: Flow) -> list[str]:
    """Studies that the run has, measured here or recorded."""
    return list(plan_of(flow).files) if "streamed_dot" in flow.config.chapters else []


def study_params(flow: Flow, study: str) -> dict[str, Any]:
    return plan_of(flow).study_params(study, flow.job_device)


def drawn_studies(flow: Flow) -> list[str]:
    """Studies that have a figure."""
    names = [Path(f).stem for f in flow.figure_files]
    return [name.removesuffix("-dot") for name in names if name.endswith("-dot")]


def drawn_plots(flow: Flow) -> list[str]:
    return [Path(f).stem for f in flow.figure_files if Path(f).name.startswith("dot-")]


def test_a_run_of_streamed_dot_products_has_its_studies_and_their_figures(
    raw_config: dict[str, Any],
) -> None:
    flow = flow_of(raw_config, DOTS)
    assert studies(flow) == drawn_studies(flow) == STUDIES
    assert [plan_of(flow).files[s] for s in STUDIES] == [
        "results/local/studies/timeline.parquet",
        "results/local/studies/errors.parquet",
        "results/local/studies/rivals.parquet",
    ]


def test_only_plots_of_kernels_that_are_swept_stand_beside_the_documents(
    raw_config: dict[str, Any],
) -> None:
    products = ["dot-running_time", "dot-throughput"]
    squares = [f"{name}_square" for name in products]
    assert drawn_plots(flow_of(raw_config, DOTS)) == products + squares
    # Without x · y the report has no page for them.
    for left_out, expected in (("dot_square", products), ("dot_streamed", [])):
        kernels = {name: spec for name, spec in DOTS.items() if name != left_out}
        assert drawn_plots(flow_of(raw_config, kernels)) == expected


@pytest.mark.parametrize("names", [["dot_host"], ["dot_host", "dot_resident"], []])
def test_a_run_that_streams_nothing_has_no_studies(
    raw_config: dict[str, Any], names: list[str]
) -> None:
    kernels = {name: DOTS[name] for name in names}
    alone = flow_of(raw_config, kernels or {"block_eq_partition": {"sizes": [512]}})
    assert studies(alone) == drawn_studies(alone) == drawn_plots(alone) == []
    assert alone.ceiling_kernels == {}
    # A state is named only where the run has several.
    assert not any(params_of(alone, figure.name)["named"] for figure in alone.figures)


def test_a_study_is_left_out_by_null_and_where_its_cells_kernels_are_not_swept(
    raw_config: dict[str, Any],
) -> None:
    asked = raw_config["chapters"]["streamed_dot"]
    for left_out in STUDIES:
        raw_config["chapters"]["streamed_dot"] = asked | {left_out: None}
        flow = flow_of(raw_config, DOTS)
        assert studies(flow) == drawn_studies(flow) == [s for s in STUDIES if s != left_out]
    raw_config["chapters"]["streamed_dot"] = asked
    for cell in asked["timeline"].values():
        cell["kernel"] = "dot_square"
    products = flow_of(raw_config, {name: DOTS[name] for name in ("dot_streamed", "dot_host")})
    assert studies(products) == drawn_studies(products) == [ERRORS, RIVALS]
    assert set(study_params(products, ERRORS)["folders"]) == {"dot_streamed", "dot_host"}


@pytest.fixture
def recorded(raw_config: dict[str, Any], tmp_path: Path) -> Callable[..., Flow]:
    """A run of a recorded data set, beside which these studies were recorded; None is no folder."""

    def of(*names: str, folder: bool = True) -> Flow:
        for place in ("cells", "studies"):
            (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / "cells/x.parquet").touch()
        for name in names:
            (tmp_path / "studies" / f"{name}.parquet").touch()
        raw_config["dataset"] = str(tmp_path / "cells")
        raw_config["chapters"]["streamed_dot"]["recorded"] = (
            str(tmp_path / "studies") if folder else None
        )
        return flow_of(raw_config, DOTS)

    return of


@pytest.mark.parametrize("folder", [True, False])
def test_a_recorded_dataset_without_recorded_studies_has_none(
    recorded: Callable[..., Flow], folder: bool
) -> None:
    flow = recorded(folder=folder)
    assert studies(flow) == drawn_studies(flow) == []
    assert "results/local/figures/dot-throughput.svg" in flow.figure_files


@pytest.mark.parametrize("names", [[TIMELINE], [ERRORS], STUDIES])
def test_recorded_studies_are_read_where_they_lie(
    recorded: Callable[..., Flow], tmp_path: Path, names: list[str]
) -> None:
    flow = recorded(*names)
    assert studies(flow) == drawn_studies(flow) == names
    for name in names:
        assert Path(plan_of(flow).files[name]).resolve() == tmp_path / f"studies/{name}.parquet"


def test_a_run_that_measures_reads_no_recorded_study(
    raw_config: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "errors.parquet").touch()
    raw_config["chapters"]["streamed_dot"]["recorded"] = str(tmp_path)
    flow = flow_of(raw_config, DOTS)
    assert studies(flow) == STUDIES
    assert plan_of(flow).files[ERRORS] == "results/local/studies/errors.parquet"


def test_the_job_of_the_timelines_is_told_its_cells_and_their_kernels(
    raw_config: dict[str, Any],
) -> None:
    flow = flow_of(raw_config | {"device": 1, "backend": "cuda"}, DOTS)
    params = study_params(flow, TIMELINE)
    cells = {name: cell_of(c) for name, c in params["cells"].items()}
    assert [f"chapters.streamed_dot.timeline.{name}" for name in cells] == sorted(
        plan_of(flow).cells
    )
    assert all(
        plan_of(flow).cells[f"chapters.streamed_dot.timeline.{n}"] == cells[n] for n in cells
    )
    assert (params["device"], params["backend"], params["seed"]) == (1, "cuda", raw_config["seed"])
    assert params["folders"] == {"dot_streamed": "kernels/dot_streamed"}
    assert list(params) == sorted(params)
    # Names of cells stand in order, so that their order in the configuration changes nothing.
    lines = raw_config["chapters"]["streamed_dot"]["timeline"]
    raw_config["chapters"]["streamed_dot"]["timeline"] = dict(reversed(lines.items()))
    again = study_params(flow_of(raw_config | {"device": 1, "backend": "cuda"}, DOTS), TIMELINE)
    assert list(again["cells"]) == list(params["cells"])
    assert again == params


def test_the_job_of_the_errors_is_told_its_data_and_every_dot_product(
    raw_config: dict[str, Any],
) -> None:
    raw_config["backend"] = "opencl"
    flow = flow_of(raw_config, {**DOTS, "copy2d_coalesced": {"sizes": [64]}})
    params = study_params(flow, ERRORS)
    assert set(params["folders"]) == set(DOTS)
    asked = raw_config["chapters"]["streamed_dot"]["errors"]
    assert params["study"] == asked
    assert set(study_params(flow, RIVALS)["folders"]) == {"dot_streamed", "dot_square"}
    for name in DOTS:
        assert params["kernel_digests"][name] == flow.config.sweeps[name].folder.digest(".cl")


@pytest.mark.parametrize(
    ("path", "value", "concerned"),
    [
        ("seed", 3, STUDIES),
        ("device", 1, STUDIES),
        ("chapters.streamed_dot.errors.sizes", [64], [ERRORS]),
        ("chapters.streamed_dot.errors.conditions", [], [ERRORS]),
        ("chapters.streamed_dot.errors.condition_size", 64, [ERRORS]),
        ("chapters.streamed_dot.rivals.lengths", [64], [RIVALS]),
        ("chapters.streamed_dot.rivals.rounds", 7, [RIVALS]),
        ("chapters.streamed_dot.timeline.one stream, at once.size", 64, [TIMELINE]),
        ("chapters.streamed_dot.timeline.one stream, at once", None, [TIMELINE]),
        ("measure.max_samples", 99, []),
        ("chapters.streamed_dot.recorded", "nowhere", []),
        ("strict", True, []),
    ],
)
def test_what_a_study_depends_on_changes_its_job_and_nothing_else_does(
    raw_config: dict[str, Any], path: str, value: Any, concerned: list[str]
) -> None:
    before = flow_of(raw_config, DOTS)
    *parents, last = path.split(".")
    place = raw_config
    for name in parents:
        place = place[name]
    assert place[last] != value
    place[last] = value
    after = flow_of(raw_config, DOTS)
    changed = [s for s in STUDIES if study_params(after, s) != study_params(before, s)]
    assert changed == concerned


# What a job depends on


def measured(flow: Flow, sweep: str) -> SimpleNamespace:
    return SimpleNamespace(sweep=sweep, dtype="float", shard="0000-of-0001")


MIXED = {
    **DOTS,
    "squares": {"kernel": "dot_square", "sizes": [128]},
    "copy2d_coalesced": {"sizes": [64]},
    "tex2d_sum": {"sizes": [64]},
}
ON_THE_HOST = {"dot_streamed", "dot_square", "squares", "dot_host"}


@pytest.mark.parametrize("backend", ["cuda", "opencl", "auto"])
def test_a_measuring_job_has_all_cores_where_the_host_is_measured(
    raw_config: dict[str, Any], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 48)
    flow = flow_of(raw_config | {"backend": backend}, MIXED)
    threads = {name: flow.measure_threads(measured(flow, name)) for name in MIXED}
    full = {name for name, n in threads.items() if n == 48}
    # Away from CUDA the device may be the host itself.
    assert full == (ON_THE_HOST if backend == "cuda" else set(MIXED))
    assert {n for name, n in threads.items() if name not in full} <= {1}


def test_the_record_of_an_h200_is_rendered_with_its_studies(raw_config: dict[str, Any]) -> None:
    raw_config["dataset"] = "reports/reference/nvidia-h200"
    raw_config["chapters"]["streamed_dot"]["recorded"] = "reports/reference/nvidia-h200-studies"
    flow = flow_of(raw_config, DOTS)
    assert studies(flow) == STUDIES
    assert all((ROOT / plan_of(flow).files[s]).resolve().is_file() for s in STUDIES)
    assert not any("studies" in Path(f).parts for f in flow.shard_files)


def test_a_shard_has_its_place_wherever_its_file_lies(flow: Flow) -> None:
    total = len(flow.shards)
    for number in (1, total):
        shard = flow.shards[number - 1]
        place, _, repeat = shard.name.partition(".repeat-")
        asked = SimpleNamespace(sweep=shard.sweep, dtype=shard.dtype, shard=place)
        if repeat:
            asked.repeat = repeat
        assert flow.shard_place(asked) == (number, total)


def test_a_data_set_that_is_a_mount_lies_within_it(
    raw_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage replaces the folder as a whole, and nothing can be put in the place of a mount."""
    flow = Flow(raw_config, ask_device=False)
    assert flow.dataset == flow.path("dataset")
    monkeypatch.setattr(
        "gpushmoo.planning.flow.os.path.ismount", lambda path: path == flow.path("dataset")
    )
    assert flow.dataset == flow.path("dataset", "data")


def test_a_study_is_made_where_it_is_asked_for_and_told_which_kernels_it_launches(
    raw_config: dict[str, Any],
) -> None:
    none = flow_of(raw_config, DOTS)
    assert (none.study_files, none.counted_files) == ([], [])
    raw_config["studies"] = ["counters"]
    flow = flow_of(raw_config, DOTS)
    assert flow.study_files == ["results/local/studies/counters.parquet"]
    assert flow.counted_files == ["results/local/studies/counters.json"]
    told = flow.counters_params(None)
    assert told["device"] == flow.job_device
    assert {"copy2d_coalesced", "surf2d_memset", "tex2d_sum"} < set(told["kernels"])


def test_energy_is_measured_of_the_runs_own_kernels_and_shown_where_it_was(
    raw_config: dict[str, Any], tmp_path: Path
) -> None:
    assert Flow(raw_config, ask_device=False).energy_files == []
    raw_config["studies"] = ["energy", "machine"]
    flow = Flow(raw_config, ask_device=False)
    assert flow.study_files == flow.energy_files == ["results/local/studies/energy.parquet"]
    assert flow.path("figures", "energy.svg") in flow.figure_files
    told = flow.energy_params(None)
    assert set(told["kernels"]) == set(told["folders"]) >= {"copy2d_coalesced", "chase"}
    shutil.copytree(record("nvidia-h200/global_load"), tmp_path / "mine/global_load")
    recorded = raw_config | {"dataset": str(tmp_path / "mine"), "studies": []}
    assert Flow(recorded, ask_device=False).energy_files == []
    write_energy(tmp_path / "mine-studies/energy.parquet", [])
    (tmp_path / "mine" / COUNTED).write_text("{}")
    flow = Flow(recorded, ask_device=False)
    assert Path(*flow.counted_files).resolve() == tmp_path / "mine" / COUNTED
    [file] = flow.energy_files
    assert Path(file).resolve() == tmp_path / "mine-studies/energy.parquet"


def test_a_recorded_dataset_has_no_studies(raw_config: dict[str, Any]) -> None:
    recorded = {"dataset": "reports/reference/nvidia-h200", "studies": ["counters"]}
    with pytest.raises(ConfigError, match=r"^studies: .* recorded dataset"):
        Flow(raw_config | recorded, ask_device=False)


def test_markup_and_braces_of_a_note_are_only_text(tmp_path: Path) -> None:
    output = SimpleNamespace(note=str(tmp_path / "note.json"))
    assert figure_note(None, output) == {"caption": ""}
    write_json(tmp_path / "note.json", {"title": "of {x}", "caption": "a*b, `c`, d_ and |e|"})
    assert figure_note(None, output) == {"caption": r"a\*b, \`c\`, d\_ and \|e\|"}
    assert figure_labels(None, output) == {"figure": "of (x)"}
    (tmp_path / "note.json").write_text("{}")
    assert figure_labels(None, output) == {"figure": ""}
