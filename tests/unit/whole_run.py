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
from gpushmoo.analysis.best import write_best
from gpushmoo.analysis.ceiling import measure_ceiling
from gpushmoo.analysis.run_quality import judge_dataset
from gpushmoo.core.schema import (
    PROFILE_SCHEMA,
    SAME_MACHINE_SCHEMA,
    SIMULATION_SCHEMA,
)
from gpushmoo.figures.same_machine import same_machine
from gpushmoo.figures.simulated import simulated
from gpushmoo.figures.stage import draw_figure
from gpushmoo.measuring.job import ShardTask, run_shard
from gpushmoo.planning.flow import Flow
from gpushmoo.report.build import ReportFiles, build_report
from gpushmoo.simulation.compare_measured import compare_with_measured
from gpushmoo.simulation.stages import simulate_device
from gpushmoo.storage.dataset import read_medians
from gpushmoo.storage.store import read_table
from streamed_dot.analysis import DOTS, copied_gbs, plot_series
from streamed_dot.chapter import StreamedPlan
from streamed_dot.figure_dot import dot
from streamed_dot.figure_errors import errors
from streamed_dot.figure_rivals import rivals
from streamed_dot.figure_timeline import timeline
from streamed_dot.numerics import ERRORS_SCHEMA
from streamed_dot.printed_plots import PLOTS, read_dot
from streamed_dot.rivals import RIVALS_SCHEMA
from streamed_dot.study_job import run_comparisons, run_errors, run_timelines
from streamed_dot.timeline import read_timeline
from tesla_c1060.chapter import DevicePlan
from tesla_c1060.checks import check_published
from tesla_c1060.figures.float3 import float3
from tesla_c1060.figures.questions import questions
from tesla_c1060.questions import answer_questions
from tesla_c1060.stages import simulate_tables, simulate_tile_widths

W = SimpleNamespace
THREADS = 2
STUDIES = {"timeline": run_timelines, "errors": run_errors, "rivals": run_comparisons}


def run_all(raw: Mapping[str, Any], cache: Path) -> Flow:
    """Measure, analyse, draw and render in the working directory, as the rules would.

    What runtimes compile is kept in `cache`.
    """
    flow = Flow(raw, ask_device=False)
    _measure(flow, cache)
    dataset = Path(flow.path("dataset"))
    aggregate([Path(f) for f in flow.shard_files], dataset, one_model=True)
    _analyse(flow, dataset)
    _simulate(flow, dataset)
    _draw(flow, dataset)
    _report(flow, dataset)
    verdict = Path(flow.path("summary", "verdict.txt"))
    judge_dataset(dataset, verdict, False, flow.swept, io.StringIO())
    return flow


def _measure(flow: Flow, cache: Path) -> None:
    terminal = io.StringIO()
    for shard in flow.shards:
        out = Path(flow.path("cells", shard.path))
        place = replace(shard, repeat=1).name
        wildcards = W(sweep=shard.sweep, dtype=shard.dtype, shard=place, repeat=shard.repeat)
        first = None if shard.repeat == 1 else Path(flow.first_repeat(wildcards))
        task = ShardTask(flow.measure_params(wildcards), (1, 1), cache, first)
        run_shard(task, out, terminal, Path(flow.plan_file))
    for chapter in flow.chapters.values():
        if isinstance(plan := chapter.plan, StreamedPlan):
            for study, file in (plan.files or {}).items():
                STUDIES[study](
                    plan.study_params(study, flow.job_device), cache, Path(file), terminal
                )


def _analyse(flow: Flow, dataset: Path) -> None:
    top = Path(flow.path("summary", "ceiling.json"))
    measure_ceiling(dataset, flow.ceiling_kernels, top)
    write_best(dataset, top, flow.host_fed_kernels, flow.limits, top.with_name("best.parquet"))


def _simulate(flow: Flow, dataset: Path) -> None:
    for s in flow.config.simulations.values():
        spec, out = flow.simulation_params(W(machine=s.name)), Path(flow.path("simulated"))
        file, levels = ROOT / spec["file"], spec["levels"]
        if s.sizes:
            blocks = out / f"{s.name}-blocks.parquet"
            simulate_device(file, levels, spec["sizes"], spec["num_partition"], blocks, THREADS)
        if s.measured:
            compare_with_measured(
                file, levels, dataset, out / f"{s.name}-measured.parquet", THREADS
            )
    for chapter in flow.chapters.values():
        if isinstance(chapter.plan, DevicePlan):
            _simulate_c1060(chapter.plan.asked, chapter.plan.reads)


def _simulate_c1060(
    asked: Mapping[str, Mapping[str, Any]], reads: Mapping[str, tuple[str, ...]]
) -> None:
    of = {kind: Path(files[0]) for kind, files in reads.items()}
    if spec := asked.get("simulate_tables"):
        sizes, blocks = spec["tables"]["sizes"], spec["tables"]["num_partition"]
        simulate_tables(ROOT / spec["file"], spec["levels"], sizes, blocks, of["tables"], THREADS)
    if spec := asked.get("simulate_questions"):
        profile = of["questions"].with_name("tesla-c1060-profile.parquet")
        file, sides = ROOT / spec["file"], spec["questions"]
        answer_questions(file, sides, of["questions"], profile, THREADS)
    if spec := asked.get("simulate_tile_widths"):
        file, tiles = ROOT / spec["file"], spec["tiles"]
        simulate_tile_widths(file, spec["levels"], tiles, of["tiles"], THREADS)
    if spec := asked.get("check_published"):
        file, latencies = ROOT / spec["file"], spec["latency_cycles"]
        check_published(file, spec["levels"], latencies, of["checks"])


def _draw(flow: Flow, dataset: Path) -> None:
    for figure in flow.figures:
        wildcards = W(figure=figure.name)
        files = {name: Path(file) for name, file in flow.figure_inputs(wildcards).items()}
        svg, terminal = Path(flow.path("figures", f"{figure.name}.svg")), io.StringIO()
        draw_figure(flow.figure_params(wildcards), files, svg, terminal)
        assert terminal.getvalue() == ""
    _draw_dots(flow, dataset)
    for s in flow.config.simulations.values():
        _draw_simulated(flow, s.name)


def _draw_dots(flow: Flow, dataset: Path) -> None:
    plots = [Path(f).stem for f in flow.figure_files]
    for plot in (p.removeprefix("dot-") for p in plots if p.startswith("dot-")):
        cells = read_medians(dataset, {"kernel": DOTS})
        ours = plot_series(cells, PLOTS[plot].unit, square=plot.endswith("_square"))
        published = read_dot(ROOT / "reports/chapters/streamed_dot/published", plot)
        svg = Path(flow.path("figures", f"dot-{plot}.svg"))
        dot(published, ours, plot, svg, copied_gbs(cells))
    for study in (name.removesuffix("-dot") for name in plots if name.endswith("-dot")):
        measured = Path(flow.plan_of("streamed_dot").study_file(study))
        svg = Path(flow.path("figures", f"{study}-dot.svg"))
        if study == "timeline":
            timeline(read_timeline(measured), svg)
        elif study == "rivals":
            rivals(read_table(measured, RIVALS_SCHEMA).to_pandas(), svg)
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
        compared=tuple(map(Path, flow.compared_files)),
        figures=tuple(map(Path, flow.figure_files)),
    )
    built = (Path(flow.path("report.json")), Path(flow.path("report.pdf")))
    build_report(files, flow.report_params(W()), ROOT / "reports", *built)
