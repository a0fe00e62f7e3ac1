"""What a run of dot products adds: studies, their jobs, figures beside the document's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpushmoo.planning.config_schema import ConfigError
from gpushmoo.planning.flow import Flow
from streamed_dot import ERRORS, RIVALS, STUDIES, TIMELINE, cell_of
from streamed_dot.chapter import StreamedPlan


def flow_of(raw: dict[str, Any], kernels: dict[str, Any]) -> Flow:
    return Flow(raw | {"kernels": kernels}, ask_device=False)


DOTS = {
    "dot_streamed": {"sizes": [64]},
    "dot_square": {"sizes": [64]},
    "dot_host": {"sizes": [64]},
    "dot_resident": {"sizes": [64]},
}


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
    assert studies(flow) == drawn_studies(flow) == [*STUDIES]
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


@pytest.mark.parametrize("names", [["dot_host"], ["dot_host", "dot_resident"]])
def test_a_run_that_streams_nothing_has_no_studies(
    raw_config: dict[str, Any], names: list[str]
) -> None:
    alone = flow_of(raw_config, {name: DOTS[name] for name in names})
    assert studies(alone) == drawn_studies(alone) == drawn_plots(alone) == []


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


@pytest.mark.parametrize("names", [None, [], [TIMELINE], [*STUDIES]])
def test_recorded_studies_are_read_where_they_lie(
    raw_config: dict[str, Any], tmp_path: Path, names: list[str] | None
) -> None:
    """None: no folder of studies is named."""
    folder = tmp_path / "studies"
    for file in (tmp_path / "cells/x", *(folder / name for name in names or ())):
        file.parent.mkdir(exist_ok=True)
        file.with_suffix(".parquet").touch()
    folder.mkdir(exist_ok=True)
    raw_config["chapters"]["streamed_dot"]["recorded"] = None if names is None else str(folder)
    # A run that measures reads none.
    assert studies(flow_of(raw_config, DOTS)) == [*STUDIES]
    flow = flow_of(raw_config | {"dataset": str(tmp_path / "cells")}, DOTS)
    assert studies(flow) == drawn_studies(flow) == (names or [])
    for name in names or ():
        assert Path(plan_of(flow).files[name]).resolve() == folder / f"{name}.parquet"


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
        ("seed", 3, [*STUDIES]),
        ("device", 1, [*STUDIES]),
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


@pytest.mark.parametrize("recorded", ["nowhere", "x" * 5000, "a{sweep}", "\0"])
def test_recorded_studies_must_be_a_folder(
    raw_config: dict[str, Any], recorded: str, tmp_path: Path
) -> None:
    (tmp_path / "x.parquet").touch()
    raw_config["chapters"]["streamed_dot"] = {"recorded": recorded}
    with pytest.raises(ConfigError) as caught:
        flow_of(raw_config | {"dataset": str(tmp_path)}, DOTS)
    assert str(caught.value).startswith(f"chapters.streamed_dot.recorded: '{recorded}'")
