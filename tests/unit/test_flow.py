"""What the rule files ask about figures and the ceiling."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from gpushmoo.flow import Flow


def flow_of(raw: dict[str, Any], kernels: dict[str, Any]) -> Flow:
    raw["kernels"] = kernels
    return Flow(raw, ask_device=False)


def params_of(flow: Flow, name: str) -> dict[str, Any]:
    kind, rest = name.split("-", 1)
    return flow.figure_params(SimpleNamespace(kind=kind, rest=rest))


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


def test_shmoos_and_curves_are_drawn_for_each_problem_and_cache_state(flow: Flow) -> None:
    assert [f.name for f in flow.figures] == [
        "curve-block_eq_partition-num_partition-512x512-warm",
        "heatmap-copy2d_coalesced-block_x-block_y-256x256-warm",
        "heatmap-copy2d_coalesced-block_x-block_y-256x256-flushed",
        "heatmap-copy2d_coalesced-block_x-block_y-48x70-warm",
        "heatmap-copy2d_coalesced-block_x-block_y-48x70-flushed",
        "workingset-global_copy",
        "workingset-global_load",
        "workingset-global_store",
    ]
    assert all(f"{flow.results}/figures/{f.name}.svg" in flow.figure_files for f in flow.figures)


def test_few_sizes_are_left_to_the_table(raw_config: dict[str, Any]) -> None:
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


def test_what_limits_shapes_is_drawn_on_cuda_where_mappings_are_compared(
    raw_config: dict[str, Any],
) -> None:
    def drawn(backend: str) -> list[str]:
        flow = flow_of(raw_config | {"backend": backend}, IMAGES)
        return [f.name for f in flow.figures if f.name.startswith("footprint-")]

    assert drawn("opencl") == []
    assert drawn("cuda") == [
        "footprint-tex2d_sum-float-128x128-warm",
        "footprint-tex2d_sum-unorm8-128x128-warm",
        "footprint-tex2d_sum-float-64x64-warm",
    ]
    flow = flow_of(raw_config | {"backend": "cuda"}, IMAGES)
    assert params_of(flow, "footprint-tex2d_sum-unorm8-128x128-warm") == {
        "where": {
            "kernel": "tex2d_sum",
            "height": 128,
            "width": 128,
            "dtype": "unorm8",
            "cache_state": "warm",
        },
        "name_state": False,
    }


def test_a_figure_is_told_which_cells_it_shows(flow: Flow) -> None:
    assert params_of(flow, "heatmap-copy2d_coalesced-block_x-block_y-48x70-flushed") == {
        "where": {
            "kernel": "copy2d_coalesced",
            "height": 48,
            "width": 70,
            "cache_state": "flushed",
        },
        "name_state": True,
        "x": "block_x",
        "y": "block_y",
        "dtypes": ["float"],
        "controls": [],
    }
    assert params_of(flow, "workingset-global_copy") == {"where": {"kernel": "global_copy"}}


def test_a_shmoo_is_told_which_variants_are_controls(raw_config: dict[str, Any]) -> None:
    params = params_of(flow_of(raw_config, IMAGES), "heatmap-tex2d_sum-block_x-block_y-64x64-warm")
    assert "block-point-clamp-written" in params["controls"]
    assert "block-point-clamp" not in params["controls"]


def test_a_state_is_named_only_where_the_run_has_several(raw_config: dict[str, Any]) -> None:
    one = flow_of(raw_config, {"block_eq_partition": {"sizes": [512]}})
    name = "curve-block_eq_partition-num_partition-512x512-warm"
    assert params_of(one, name)["name_state"] is False
    assert params_of(one, name)["unit"] == "blocks"


def test_the_ceiling_is_shown_by_kernels_that_say_so(flow: Flow) -> None:
    assert flow.ceiling_kernels == {"global_load": "load", "global_store": "store"}


def test_a_run_may_have_no_kernel_of_the_ceiling(raw_config: dict[str, Any]) -> None:
    assert flow_of(raw_config, {"block_eq_partition": {}}).ceiling_kernels == {}
