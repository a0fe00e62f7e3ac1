"""All jobs of a run, one after the other in this process, for tests of what configurations do.

What Snakemake does with them, workflow tests check; what they do with odd values is asked here of
many configurations, which would take hours by way of Snakemake.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from conftest import ROOT
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import best_of_dataset
from gpushmoo.analysis.ceiling import ceiling_rows, read_ceiling, write_ceiling
from gpushmoo.analysis.dots import DOTS, copied_gbs, plot_series
from gpushmoo.analysis.published_dot import PLOTS, read_dot
from gpushmoo.analysis.statuses import write_verdict
from gpushmoo.dataset import matching, read_cells, read_medians
from gpushmoo.figures.curve import curve
from gpushmoo.figures.dot import dot
from gpushmoo.figures.errors import errors
from gpushmoo.figures.float3 import float3
from gpushmoo.figures.footprint import footprint
from gpushmoo.figures.heatmap import heatmap
from gpushmoo.figures.questions import questions
from gpushmoo.figures.same_machine import same_machine
from gpushmoo.figures.simulated import simulated
from gpushmoo.figures.timeline import timeline
from gpushmoo.figures.workingset import workingset
from gpushmoo.flow import Flow
from gpushmoo.kernels import load_kernel
from gpushmoo.measure_job import run_shard
from gpushmoo.model.questions import answer_questions
from gpushmoo.model.same_machine import compare_with_measured
from gpushmoo.model.series import fit_dataset
from gpushmoo.model.shapes import SHAPE_SCHEMA, fit_shapes
from gpushmoo.model.simulate import check_published, simulate_device, simulate_tables
from gpushmoo.numerics import ERRORS_SCHEMA
from gpushmoo.report.build import ReportFiles, build_report
from gpushmoo.schema import (
    PREDICTION_SCHEMA,
    PROFILE_SCHEMA,
    SAME_MACHINE_SCHEMA,
    SIMULATION_SCHEMA,
)
from gpushmoo.store import read_table, write_parquet
from gpushmoo.study_job import run_errors, run_timelines
from gpushmoo.timeline import read_timeline

W = SimpleNamespace
THREADS = 2


def run_all(raw: Mapping[str, Any]) -> Flow:
    """Measure, analyse, draw and render in the working directory, as the rules would."""
    flow = Flow(raw, ask_device=False)
    _measure(flow)
    dataset = Path(flow.path("dataset"))
    aggregate([Path(f) for f in flow.shard_files], dataset, one_model=True)
    _analyse(flow, dataset)
    _simulate(flow, dataset)
    _draw(flow, dataset)
    _report(flow, dataset)
    write_verdict(read_cells(dataset), Path(flow.path("verdict.txt")), False, {}, io.StringIO())
    return flow


def _measure(flow: Flow) -> None:
    cache, terminal = Path(flow.cache), io.StringIO()
    for shard in flow.shards:
        out = Path(flow.path("cells", shard.path))
        place = replace(shard, repeat=1).name
        wildcards = W(sweep=shard.sweep, dtype=shard.dtype, shard=place, repeat=shard.repeat)
        first = None if shard.repeat == 1 else Path(flow.first_repeat(wildcards))
        run_shard(flow.measure_params(wildcards), (1, 1), cache, out, terminal, first)
    for study in flow.studies:
        job = run_timelines if study == "timeline" else run_errors
        job(flow.study_params(study), cache, Path(flow.study_file(study)), terminal)


def _analyse(flow: Flow, dataset: Path) -> None:
    kinds, config = flow.ceiling_kernels, flow.config
    top = Path(flow.path("summary", "ceiling.json"))
    top.parent.mkdir()
    cells = read_cells(dataset, {"kernel": list(kinds), "status": "ok"})
    write_ceiling(ceiling_rows(cells, kinds), top)
    best = best_of_dataset(dataset, read_ceiling(top), flow.host_fed_kernels)
    write_parquet(best, Path(flow.path("summary", "best.parquet")), {})
    model = Path(flow.path("model"))
    model.mkdir()
    kernels = flow.persistent_kernels
    fit_dataset(
        read_medians(dataset, {"kernel": kernels}),
        kernels,
        config.holdout,
        config.seed,
        model / "params.json",
        model / "predictions.parquet",
    )
    folders = flow.mapped_kernels
    fit_shapes(
        read_medians(dataset, {"kernel": list(folders)}),
        {name: load_kernel(ROOT / folder).workload for name, folder in folders.items()},
        config.holdout,
        config.seed,
        model / "shapes.json",
        model / "shapes.parquet",
    )


def _simulate(flow: Flow, dataset: Path) -> None:
    for s in flow.config.simulations:
        spec, out = flow.simulation_params(W(machine=s.name)), Path(flow.path("simulated"))
        file, levels = ROOT / spec["file"], spec["levels"]
        if s.sizes:
            blocks = out / f"{s.name}-blocks.parquet"
            simulate_device(file, levels, spec["sizes"], spec["num_partition"], blocks, THREADS)
        if s.tables:
            tables = out / f"{s.name}-tables.parquet"
            simulate_tables(file, levels, *spec["tables"].values(), tables, THREADS)
        if s.questions:
            both = (out / f"{s.name}-{what}.parquet" for what in ("questions", "profile"))
            answer_questions(file, spec["questions"], *both, THREADS)
        if s.document:
            check_published(file, out / f"{s.name}-checks.json")
        if s.measured:
            compare_with_measured(
                file, levels, dataset, out / f"{s.name}-measured.parquet", THREADS
            )


def _draw(flow: Flow, dataset: Path) -> None:
    ceiling = read_ceiling(Path(flow.path("summary", "ceiling.json")))
    model = Path(flow.path("model"))
    for figure in flow.figures:
        kind, rest = figure.name.split("-", 1)
        spec = flow.figure_params(W(kind=kind, rest=rest))
        svg = Path(flow.path("figures", f"{figure.name}.svg"))
        cells = read_medians(dataset, spec["where"])
        if kind == "heatmap":
            xy, dtypes = (spec["x"], spec["y"]), spec["dtypes"]
            heatmap(cells, *xy, dtypes, svg, ceiling, spec["name_state"], spec["controls"])
        elif kind == "curve":
            predictions = read_table(model / "predictions.parquet", PREDICTION_SCHEMA).to_pandas()
            predictions = matching(predictions, spec["where"])
            curve(cells, predictions, spec["x"], spec["unit"], svg, ceiling, spec["name_state"])
        elif kind == "footprint":
            rows = read_table(model / "shapes.parquet", SHAPE_SCHEMA).to_pandas()
            rows = matching(rows, spec["where"])
            footprint(rows, [], svg, spec["name_state"])
        else:
            workingset(cells, figure.kernel, svg, ceiling)
    _draw_dots(flow, dataset)
    for s in flow.config.simulations:
        _draw_simulated(flow, s.name)


def _draw_dots(flow: Flow, dataset: Path) -> None:
    for plot in flow.dot_plots:
        cells = read_medians(dataset, {"kernel": DOTS})
        ours = plot_series(cells, PLOTS[plot].unit, square=plot.endswith("_square"))
        published = read_dot(ROOT / "reports/published/dot", plot)
        svg = Path(flow.path("figures", f"dot-{plot}.svg"))
        dot(published, ours, plot, svg, copied_gbs(cells))
    for study in flow.studies:
        measured, svg = Path(flow.study_file(study)), Path(flow.path("figures", f"{study}-dot.svg"))
        if study == "timeline":
            timeline(read_timeline(measured), svg)
        else:
            errors(read_table(measured, ERRORS_SCHEMA).to_pandas(), svg)


def _draw_simulated(flow: Flow, machine: str) -> None:
    def table(what: str, schema: Any = SIMULATION_SCHEMA) -> Any:
        path = Path(flow.path("simulated", f"{machine}-{what}.parquet"))
        return read_table(path, schema).to_pandas()

    wanted = {Path(f).stem for f in flow.figure_files}
    for kind, draw in (
        ("simulated", lambda svg: simulated(table("blocks"), svg)),
        ("questions", lambda svg: questions(table("questions"), svg)),
        ("float3", lambda svg: float3(table("questions"), table("profile", PROFILE_SCHEMA), svg)),
        ("same_machine", lambda svg: same_machine(table("measured", SAME_MACHINE_SCHEMA), svg)),
    ):
        if f"{kind}-{machine}" in wanted:
            draw(Path(flow.path("figures", f"{kind}-{machine}.svg")))


def _report(flow: Flow, dataset: Path) -> None:
    files = ReportFiles(
        dataset=dataset,
        best=Path(flow.path("summary", "best.parquet")),
        ceiling=Path(flow.path("summary", "ceiling.json")),
        model=Path(flow.path("model", "params.json")),
        shapes=Path(flow.path("model", "shapes.json")),
        checks=tuple(map(Path, flow.simulated_files("checks.json"))),
        tables=tuple(map(Path, flow.simulated_files("tables.parquet"))),
        questions=tuple(map(Path, flow.simulated_files("questions.parquet"))),
        measured=tuple(map(Path, flow.simulated_files("measured.parquet"))),
        figures=tuple(map(Path, flow.figure_files)),
    )
    built = (Path(flow.path("report.json")), Path(flow.path("report.pdf")))
    build_report(files, flow.report_params(W()), ROOT / "reports", *built)
