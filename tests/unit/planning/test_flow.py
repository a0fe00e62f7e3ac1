"""What the rule files ask about figures, the measured peak, studies, and what a job depends on."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpushmoo.core.figure_job import FigureJob
from gpushmoo.planning.flow import Flow
from gpushmoo.planning.plan import figure_labels, figure_note
from gpushmoo.storage.wholefile import write_json


def flow_of(raw: dict[str, Any], kernels: dict[str, Any]) -> Flow:
    # There is no such device, and nothing asks it.
    raw |= {"kernels": kernels, "device": 99}
    return Flow(raw, ask_device=False)


def figure_of(flow: Flow, name: str) -> FigureJob:
    return flow.figure_job(SimpleNamespace(figure=name))


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


def test_the_largest_problem_is_drawn(flow: Flow, raw_config: dict[str, Any]) -> None:
    assert [f.name for f in flow.figures] == [
        "curve-block_eq_partition-num_partition-512x512-warm",
        "heatmap-copy2d_coalesced-block_x-block_y-256x256-warm",
        "workingset-global_copy",
        "workingset-global_load",
        "workingset-global_store",
    ]
    assert all(f"{flow.results}/figures/{f.name}.svg" in flow.figure_files for f in flow.figures)
    assert flow.build_threads(SimpleNamespace(sweep="copy2d_coalesced", dtype="float")) == 1
    assert flow.peak_kernels == {"global_load": "load", "global_store": "store"}
    told = flow.report_params(SimpleNamespace())
    assert {title: len(files) for title, files in told["sections"].items()} == {
        "Bandwidth over one parameter": 1,
        "Block shape": 1,
        "Measured peak and caches": 3,
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
    job = flow.job(asked)
    assert (job.folder, job.sizes) == ("kernels/tex2d_sum", [[128, 128]])
    assert list(flow.report_params(asked)["kernels"]) == ["tex2d_sum"]


def test_a_figure_is_told_which_cells_it_shows(flow: Flow) -> None:
    assert figure_of(flow, "heatmap-copy2d_coalesced-block_x-block_y-256x256-warm").plain == {
        "where": {
            "kernel": "copy2d_coalesced",
            "timing_mode": "batched",
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
    assert figure_of(flow, "workingset-global_copy").where == {
        "kernel": "global_copy",
        "timing_mode": "batched",
    }
    curve = SimpleNamespace(figure="curve-block_eq_partition-num_partition-512x512-warm")
    assert set(flow.figure_inputs(curve)) == {"dataset", "peak"}


def test_figures_are_of_the_devices_model(raw_config: dict[str, Any]) -> None:
    flow = flow_of(raw_config | {"backend": "cuda"}, IMAGES | {"block_eq_partition": {}})
    [curve, *_] = [f.name for f in flow.figures if f.name.startswith("curve")]
    files = flow.figure_inputs(SimpleNamespace(figure=curve))
    assert [files["device"]] == flow.device_cells
    job = figure_of(flow, "heatmap-tex2d_sum-block_x-block_y-64x64-warm")
    assert "block-point-clamp-written" in job.controls
    assert "block-point-clamp" not in job.controls
    # A state is named only where the run has several.
    assert job.named == []


def measured(flow: Flow, sweep: str) -> SimpleNamespace:
    return SimpleNamespace(sweep=sweep, dtype="float", shard="0000-of-0001")


MIXED = {
    "dot_streamed": {"sizes": [64]},
    "dot_square": {"sizes": [64]},
    "dot_host": {"sizes": [64]},
    "dot_resident": {"sizes": [64]},
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


def test_a_shard_has_its_place_and_a_mount_its_data_within(
    flow: Flow, raw_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    total = len(flow.shards)
    for number in (1, total):
        shard = flow.shards[number - 1]
        place, _, repeat = shard.name.partition(".repeat-")
        asked = SimpleNamespace(sweep=shard.sweep, dtype=shard.dtype, shard=place)
        if repeat:
            asked.repeat = repeat
        assert flow.shard_place(asked) == (number, total)
    # A stage replaces the folder as a whole, and nothing can be put in the place of a mount.
    flow = Flow(raw_config, ask_device=False)
    assert flow.dataset == flow.path("dataset")
    monkeypatch.setattr(
        "gpushmoo.planning.flow.os.path.ismount", lambda path: path == flow.path("dataset")
    )
    assert flow.dataset == flow.path("dataset", "data")


def test_markup_and_braces_of_a_note_are_only_text(tmp_path: Path) -> None:
    output = SimpleNamespace(note=str(tmp_path / "note.json"))
    assert figure_note(None, output) == {"caption": ""}
    write_json(tmp_path / "note.json", {"title": "of {x}", "caption": "a*b, `c`, d_ and |e|"})
    assert figure_note(None, output) == {"caption": r"a\*b, \`c\`, d\_ and \|e\|"}
    assert figure_labels(None, output) == {"figure": "of (x)"}
    (tmp_path / "note.json").write_text("{}")
    assert figure_labels(None, output) == {"figure": ""}
