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

from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import write_best
from gpushmoo.analysis.ceiling import measure_ceiling
from gpushmoo.analysis.run_quality import judge_dataset
from gpushmoo.figures.stage import draw_figure
from gpushmoo.measuring.job import ShardTask, run_shard
from gpushmoo.planning.flow import Flow
from gpushmoo.report.build import build_report
from streamed_dot.chapter import StreamedPlan
from streamed_dot.figure_dot import draw_plot
from streamed_dot.figure_studies import draw_study
from streamed_dot.study_job import run_job
from tesla_c1060.chapter import DevicePlan
from tesla_c1060.checks import check_published
from tesla_c1060.figures.simulated import draw
from tesla_c1060.simulation.compare_measured import compare_with_measured
from tesla_c1060.stages import make_table

W = SimpleNamespace
THREADS = 2


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
        run_shard(task, out, terminal)
    for chapter in flow.config.chapters.values():
        if isinstance(plan := chapter.plan, StreamedPlan):
            for study, file in plan.files.items():
                spec = plan.study_params(study, flow.job_device)
                run_job(study, spec, str(cache), Path(file), terminal)


def _analyse(flow: Flow, dataset: Path) -> None:
    top = Path(flow.path("summary", "ceiling.json"))
    measure_ceiling(dataset, flow.ceiling_kernels, top)
    write_best(dataset, top, flow.host_fed_kernels, flow.limits, top.with_name("best.parquet"))


def _simulate(flow: Flow, dataset: Path) -> None:
    for plan in _device_plans(flow):
        for file, spec in plan.asked.items():
            if spec["kind"] == "checks":
                check_published(spec, Path(file))
            elif spec["kind"] == "measured":
                compare_with_measured(spec, dataset, Path(file), THREADS)
            elif spec["kind"] != "atlas":
                make_table(spec, Path(file), THREADS)


def _device_plans(flow: Flow) -> list[DevicePlan]:
    plans = [chapter.plan for chapter in flow.config.chapters.values()]
    return [plan for plan in plans if isinstance(plan, DevicePlan)]


def _draw(flow: Flow, dataset: Path) -> None:
    for figure in flow.figures:
        wildcards = W(figure=figure.name)
        files = {name: Path(file) for name, file in flow.figure_inputs(wildcards).items()}
        svg, terminal = Path(flow.path("figures", f"{figure.name}.svg")), io.StringIO()
        draw_figure(flow.figure_params(wildcards), files, svg, terminal)
        assert terminal.getvalue() == ""
    _draw_dots(flow, dataset)
    for plan in _device_plans(flow):
        for figure in plan.figures:
            kind, _, machine = figure.partition("-")
            tables = [Path(f) for f in plan.drawn_from(W(kind=kind, machine=machine))]
            draw(kind, tables, Path(flow.path("figures", f"{figure}.svg")))


def _draw_dots(flow: Flow, dataset: Path) -> None:
    plots = [Path(f).stem for f in flow.figure_files]
    for plot in (p.removeprefix("dot-") for p in plots if p.startswith("dot-")):
        draw_plot(plot, dataset, Path(flow.path("figures", f"dot-{plot}.svg")))
    for study in (name.removesuffix("-dot") for name in plots if name.endswith("-dot")):
        measured = Path(flow.plan_of("streamed_dot").files[study])
        draw_study(study, measured, Path(flow.path("figures", f"{study}-dot.svg")))


def _report(flow: Flow, dataset: Path) -> None:
    files = {
        "dataset": dataset,
        "best": Path(flow.path("summary", "best.parquet")),
        "ceiling": Path(flow.path("summary", "ceiling.json")),
        "figures": [*map(Path, flow.figure_files)],
        **dict.fromkeys(("machine", "device", "counted", "energy", "history"), ()),
    }
    built = (Path(flow.path("report.json")), Path(flow.path("report.pdf")))
    build_report(files, flow.report_params(W()), *built)
