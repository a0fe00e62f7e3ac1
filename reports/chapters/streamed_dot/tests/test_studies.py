"""Studies beside the sweeps: what is planned and refused; a run from configuration to report."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import ROOT, python
from gpushmoo.chapters import ChapterRun
from gpushmoo.core.errors import ChapterError, ConfigError
from gpushmoo.core.space import Cell, Problem
from gpushmoo.planning.config import load_config
from gpushmoo.planning.flow import Flow
from gpushmoo.storage.dataset import read_cells
from gpushmoo.workloads.loader import KernelFolder, load_kernel
from projects import Project
from streamed_dot import ERRORS, RIVALS, STUDIES, TIMELINE, cell_of
from streamed_dot.chapter import CHAPTER, HERE, MAX_TIMELINES, STUDYING, StreamedPlan
from streamed_dot.timeline import COPY, KERNEL, read_timeline
from workflow_fixtures import new_project


def test_all_code_that_a_study_imports_counts() -> None:
    module = "streamed_dot.study_job"
    code = f"import sys, {module}\nfor m in sys.modules.values(): print(vars(m).get('__file__'))"
    loaded = map(Path, python(code).stdout.splitlines())
    assert {file for file in loaded if file.is_relative_to(HERE)} == set(STUDYING)


def flow_of(raw: dict[str, Any], kernels: dict[str, Any]) -> Flow:
    return Flow(raw | {"kernels": kernels}, ask_device=False)


STREAMED = "dot_streamed"
DOTS: dict[str, Any] = {
    name: {"sizes": [64]} for name in (STREAMED, "dot_square", "dot_host", "dot_resident")
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
    """Names of the studies for which the workflow draws a figure, from its file names."""
    names = [Path(f).stem for f in flow.figure_files]
    return [name.removesuffix("-dot") for name in names if name.endswith("-dot")]


def test_a_run_has_studies_and_plots_of_swept_kernels(raw_config: dict[str, Any]) -> None:
    flow = flow_of(raw_config, DOTS)
    assert studies(flow) == drawn_studies(flow) == [*STUDIES]
    assert [plan_of(flow).files[s] for s in STUDIES] == [
        f"results/local/studies/{name}.parquet" for name in ("timeline", "errors", "rivals")
    ]
    products = ["dot-running_time", "dot-throughput"]
    squares = [f"{name}_square" for name in products]
    # Without x · y the report has no page for them, and there are no studies.
    for left_out, expected in (("", products + squares), ("dot_square", products), (STREAMED, [])):
        flow = flow_of(raw_config, {n: spec for n, spec in DOTS.items() if n != left_out})
        drawn = [Path(f).stem for f in flow.figure_files if Path(f).name.startswith("dot-")]
        assert drawn == expected
        assert bool(studies(flow)) == bool(drawn_studies(flow)) == bool(expected)
    asked = raw_config["chapters"]["streamed_dot"]
    for left_out in STUDIES:
        raw_config["chapters"]["streamed_dot"] = asked | {left_out: None}
        flow = flow_of(raw_config, DOTS)
        assert studies(flow) == drawn_studies(flow) == [s for s in STUDIES if s != left_out]
    raw_config["chapters"]["streamed_dot"] = asked
    for cell in asked["timeline"].values():
        cell["kernel"] = "dot_square"
    flow = flow_of(raw_config, {name: DOTS[name] for name in (STREAMED, "dot_host")})
    assert studies(flow) == drawn_studies(flow) == [ERRORS, RIVALS]
    assert set(study_params(flow, ERRORS)["folders"]) == {STREAMED, "dot_host"}


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


def test_a_studys_job_is_told_its_cells_and_their_kernels(raw_config: dict[str, Any]) -> None:
    raw_config |= {"device": 1, "backend": "cuda"}
    flow = flow_of(raw_config, {**DOTS, "copy2d_coalesced": {"sizes": [64]}})
    params = study_params(flow, TIMELINE)
    cells = {f"chapters.streamed_dot.timeline.{n}": cell_of(s) for n, s in params["cells"].items()}
    assert cells == plan_of(flow).cells
    assert (params["device"], params["backend"], params["seed"]) == (1, "cuda", raw_config["seed"])
    assert params["folders"] == {STREAMED: "kernels/dot_streamed"}
    told = study_params(flow, ERRORS)
    assert set(told["folders"]) == set(DOTS)
    assert told["study"] == raw_config["chapters"]["streamed_dot"]["errors"]
    assert set(study_params(flow, RIVALS)["folders"]) == {STREAMED, "dot_square"}
    for name in DOTS:
        assert told["kernel_digests"][name] == flow.config.sweeps[name].folder.digest(".cu")
    # The order of cells in the configuration changes nothing.
    lines = raw_config["chapters"]["streamed_dot"]["timeline"]
    raw_config["chapters"]["streamed_dot"]["timeline"] = dict(reversed(lines.items()))
    assert str(study_params(flow_of(raw_config, DOTS), TIMELINE)) == str(params)


@pytest.mark.parametrize(
    ("path", "value", "concerned"),
    [
        ("seed", 3, [*STUDIES]),
        ("device", 1, [*STUDIES]),
        ("chapters.streamed_dot.errors.sizes", [64], [ERRORS]),
        ("chapters.streamed_dot.rivals.lengths", [64], [RIVALS]),
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


@pytest.mark.parametrize("recorded", ["nowhere", "a{sweep}"])
def test_recorded_is_a_folder(raw_config: dict[str, Any], recorded: str, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").touch()
    raw_config["chapters"]["streamed_dot"] = {"recorded": recorded}
    with pytest.raises(ConfigError) as caught:
        flow_of(raw_config | {"dataset": str(tmp_path)}, DOTS)
    assert str(caught.value).startswith(f"chapters.streamed_dot.recorded: '{recorded}'")


pytest_plugins = ("workflow_fixtures",)

KERNELS = ("dot_streamed", "dot_square", "dot_host")
FOLDERS = {name: load_kernel(ROOT / "kernels" / name) for name in KERNELS}
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
KEY = "chapters.streamed_dot.timeline.mine"


def planned(
    timeline: Mapping[str, Any], folders: Mapping[str, KernelFolder] = FOLDERS
) -> dict[str, Cell]:
    """The cells that are traced, by name."""
    run = ChapterRun(Path("results/r"), 7, folders, None, ROOT)
    plan = CHAPTER.plan({"timeline": timeline}, run)
    return {key.rpartition(".")[2]: cell for key, cell in plan.cells.items()}


def with_axes(**changed: int) -> dict[str, Any]:
    return {**SPEC, "axes": {**AXES, **changed}}


def test_timelines_are_of_the_cells_that_are_asked_for_and_swept() -> None:
    found = planned({"mine": SPEC})["mine"]
    assert found == Cell(
        STREAMED, "float", "pageable-fresh", Problem(1, 1000), tuple(sorted(AXES.items()))
    )
    least = with_axes(streams=1, min_per_stream=1, chunk=0, host_percent=0)
    most = with_axes(streams=2**28, chunk=2**28, host_percent=99)
    bounds = planned({"least": least, "most": most, "other": None})
    assert (bounds["least"]["chunk"], bounds["most"]["host_percent"]) == (0, 99)
    only = {STREAMED: FOLDERS[STREAMED]}
    assert list(planned({"mine": SPEC, "squares": {"kernel": "dot_square"}}, only)) == ["mine"]
    most_of = {f"t{i}": with_axes(streams=1 + i) for i in range(MAX_TIMELINES)}
    assert len(planned({**most_of, "x": None})) == MAX_TIMELINES
    with pytest.raises(ChapterError, match=r"timeline: 4 cells; a figure has room for 3$"):
        planned({**most_of, "x": SPEC})


@pytest.mark.parametrize(
    ("spec", "key", "words"),
    [
        ({**SPEC, "kernel": "dot_host"}, "kernel", ["'dot_host'", "streams nothing"]),
        ({**SPEC, "dtype": "half"}, "dtype", ["'half'", "float, double"]),
        ({**SPEC, "variant": "pinned"}, "variant", ["'pinned'", "pinned-pooled, pinned-fresh"]),
        ({**SPEC, "axes": AXES | {"block_x": 8}}, "axes", ["streams, ", "threads", "one value"]),
        (with_axes(streams=0), "axes.streams", ["is 0", "from 1 to"]),
        (with_axes(chunk=-1), "axes.chunk", ["is -1", "from 0 to"]),
        (with_axes(host_percent=101), "axes.host_percent", ["is 101", "from 0 to 100"]),
        (with_axes(host_percent=100), "axes.host_percent", ["is 100", "nothing is streamed"]),
        (with_axes(threads=1025), "axes", ["1025 threads a block", "takes 1024"]),
    ],
)
def test_a_cell_that_cannot_be_traced_is_refused_by_a_clause_that_names_the_key(
    spec: dict[str, Any], key: str, words: list[str]
) -> None:
    with pytest.raises(ChapterError) as caught:
        planned({"other": SPEC, "mine": spec})
    text = str(caught.value)
    assert text.startswith((f"{KEY}.{key}:", f"{KEY}.{key} is "))
    assert [w for w in words if w not in text] == []
    # What goes on as a sentence has no end of its own.
    assert text[-1] not in ".?!\n"
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("timeline", {"mine": {**SPEC, "dtype": "half"}}, f"{KEY}.dtype: 'half'"),
        ("timeline", {"mine": {**SPEC, "cache": "warm"}}, f"{KEY}.cache"),
        ("timeline", {3: SPEC}, "a key must be a text"),
        ("errors.sizes", [0], "streamed_dot.errors.sizes.0"),
        ("rivals.rounds", 5, "streamed_dot.rivals.rounds"),
    ],
)
def test_a_fault_of_a_study_is_one_sentence_that_names_the_key(
    raw_config: dict[str, Any], path: str, value: Any, words: str
) -> None:
    *parents, last = path.split(".")
    place = raw_config["chapters"]["streamed_dot"]
    for name in parents:
        place = place[name]
    place[last] = value
    with pytest.raises(ConfigError) as caught:
        load_config(raw_config, ROOT)
    assert words in str(caught.value)


SIZES = [0, 1, 3, 1000]
TRACED = {**AXES, "streams": 2, "chunk": 90, "blocks_per_stream": 3, "threads": 32}
TRACED["host_percent"] = 10
CONFIG: dict[str, Any] = {
    "run": "dots",
    "backend": "opencl",
    "only": ["dot_streamed", "dot_host", "dot_square", "dot_resident"],
    "kernels": {
        "dot_streamed": {
            "dtypes": ["double"],
            "variants": ["pinned-pooled", "pageable-fresh"],
            "sizes": SIZES,
            "axes": {
                "streams": [1, 3],
                "min_per_stream": 100,
                "chunk": 90,
                "host_percent": [0, 40],
            },
        },
        "dot_host": {"dtypes": ["double"], "sizes": SIZES},
        "dot_square": {"dtypes": ["double"], "variants": ["pinned-pooled"], "sizes": [1000]},
        "dot_resident": {
            "dtypes": ["double"],
            "sizes": [1000],
            "axes": {"threads": 64, "grid": 3, "unroll": [1, 4]},
        },
    },
    "measure": {"repeats": 1, "min_samples": 6, "max_samples": 7},
    "chapters": {
        "streamed_dot": {
            # Beside the default's, which are left out.
            "timeline": {
                "one stream, at once": None,
                "four streams, in pieces": None,
                "in pieces": {
                    "kernel": "dot_streamed",
                    "dtype": "double",
                    "variant": "pinned-pooled",
                    "size": 1000,
                    "axes": TRACED,
                },
            },
            "errors": {"sizes": [3, 64], "conditions": [1.0e4], "condition_size": 64},
            "rivals": {
                "lengths": [64, 1000],
                "share_lengths": [1000],
                "parameter_lengths": [],
                "between": [],
                "rounds": 6,
            },
        }
    },
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = new_project(tmp_path_factory.mktemp("dots") / "project")
    outcome = project.snakemake(config=(project.write_config("dots.yaml", CONFIG),))
    assert outcome.status == 0, outcome.text
    return project


def test_every_length_is_computed_right_by_every_way(project: Project) -> None:
    cells = read_cells(project.root / "results/dots/dataset")
    assert set(cells["status"]) == {"ok"}
    counts = cells.groupby("kernel", observed=True).size().to_dict()
    assert counts == {
        "dot_streamed": 2 * 4 * 4,
        "dot_host": 4 * 4,
        # By the default's numbers of streams.
        "dot_square": 4,
        "dot_resident": 2,
    }
    square = cells["kernel"] == "dot_square"
    assert (cells[~square]["bytes_read"] == 16 * cells[~square]["width"]).all()
    assert (cells[square]["bytes_read"] == 8 * 1000).all()
    streamed = cells[cells["kernel"].isin(["dot_streamed", "dot_square"]) & (cells["width"] > 0)]
    assert (streamed["memcpy_gbs"] > 0).all()


def test_the_studies_are_measured_drawn_and_told(project: Project) -> None:
    results = project.root / "results/dots"
    spans = read_timeline(results / "studies/timeline.parquet")
    assert set(spans["case"]) == {"in pieces"}
    # The device's 900 elements in ten pieces over two streams, each with its kernel.
    assert set(spans["stream"]) == {0, 1}
    assert spans["what"].value_counts().to_dict() == {COPY: 2 * 10, KERNEL: 10}
    assert spans["nbytes"].sum() == 900 * 2 * 8
    errors = pq.read_table(results / "studies/errors.parquet").to_pandas()
    assert set(errors["kernel"]) == set(DOTS)
    assert set(errors["n"]) == {3, 64}
    assert errors["agrees"].all()

    facts = json.loads((results / "report.json").read_text())
    [chapter] = facts["chapters"]
    page = chapter["facts"]
    plots = [
        f"dot-{name}{s}.svg" for s in ("", "_square") for name in ("running_time", "throughput")
    ]
    for key, files in (
        ("figures", plots),
        ("rivals", ["rivals-dot.svg"]),
        ("timelines", ["timeline-dot.svg"]),
        ("errors", ["errors-dot.svg"]),
    ):
        assert [f["file"] for f in page[key]] == files
        for shown, file in zip(page[key], files, strict=True):
            note = json.loads((results / "figures" / file).with_suffix(".json").read_text())
            assert shown["caption"] == note["caption"]
            assert note.get("finding", "") in chapter["findings"] or key != "timelines"
    assert {r["operation"] for r in page["rivalries"]} == {"x·x", "x·y"}
    assert [c["dtype"] for c in page["sharings"]] == ["double", "float"] * 2
    assert [(r["n"], r["library"]) for r in page["residents"]] == [("1000", "not measured")]
    # What comes over a bus has no share of what the device's own memory can do.
    host_fed = {STREAMED, "dot_host", "dot_square"}
    best = pq.read_table(results / "summary/best.parquet").to_pandas()
    assert host_fed < set(best["kernel"])
    assert best.loc[best["kernel"].isin(host_fed), "share_of_peak"].isna().all()
    # The page tells of them, and no row of the table of best sets.
    assert facts["best"] == []
    assert (results / "report.pdf").read_bytes().startswith(b"%PDF-")
