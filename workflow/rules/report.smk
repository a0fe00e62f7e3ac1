# Shards into one dataset, the device's peak, the best cells and the models. Seconds to a
# minute of one core each: as local rules, since on a cluster not worth a job's start, let alone a GPU.


use rule stage as aggregate with:
    input:
        # A recorded data set lies here, wherever the results go.
        shards=local(flow.shard_files) if flow.config.dataset else flow.shard_files,
    output:
        directory(flow.dataset),
    params:
        code=code_of("analysis"),
        call="gpushmoo.analysis.aggregate:aggregate_run",
        # Recorded ones may be of several: their names keep them apart.
        one_model=flow.config.dataset is None,
        # The shards of a recorded data set tell their own.
        plan=None if flow.config.dataset else flow.plan.as_plain(),


use rule stage as peak with:
    input:
        dataset=flow.dataset,
    output:
        flow.path("summary", "peak.json"),
    params:
        code=code_of("analysis"),
        call="gpushmoo.analysis.peak:measure_peak",
        kinds=flow.peak_kernels,


use rule stage as best with:
    input:
        dataset=flow.dataset,
        peak=flow.path("summary", "peak.json"),
    output:
        flow.path("summary", "best.parquet"),
    params:
        code=code_of("analysis"),
        call="gpushmoo.analysis.best:write_best",
        host_fed=flow.host_fed_kernels,
        limits=flow.limits,


# Only in runs that sweep `chase`.
use rule stage as machine with:
    input:
        dataset=flow.dataset,
    output:
        flow.path("model", "machine.json"),
    params:
        code=code_of("model"),
        call="gpushmoo.model.machine:measure_machine",


use rule stage as device_model with:
    input:
        dataset=flow.dataset,
        code=flow.recorded_beside("code_paths.json"),
    output:
        fits=flow.path("model", "device.json"),
        table=flow.path("model", "device.parquet"),
    params:
        code=code_of("model"),
        call="gpushmoo.model.stage:fit_devices",
        folders=flow.kernel_places,
        # The model asks kernels' Python what threads access.
        workloads=flow.workload_code,


# Figures of measured cells, the report, and the verdict on faults.


use rule stage as figure with:
    input:
        unpack(flow.figure_inputs),
    output:
        svg=report(
            flow.path("figures", "{figure}.svg"),
            caption="../report/figure.rst",
            category=lambda wildcards: flow.figure(wildcards).view.section(),
            labels=figure_labels,
        ),
        note=flow.path("figures", "{figure}.json"),
    params:
        code=code_of("figures"),
        call="gpushmoo.figures.stage:draw_figure",
        note=figure_note,
        spec=flow.figure_params,
        views=lambda wildcards: flow.figure(wildcards).code,


# Only in runs with the study of energy, or with a recorded one.
use rule stage as figure_energy with:
    input:
        energy=flow.energy_files[0] if flow.energy_files else [],
    output:
        svg=report(
            flow.path("figures", "energy.svg"),
            caption="../report/figure.rst",
            category="Energy",
            labels=figure_labels,
        ),
        note=flow.path("figures", "energy.json"),
    params:
        code=code_of("figures"),
        call="gpushmoo.figures.runs:energy_figure",
        note=figure_note,


use rule stage as report with:
    input:
        figures=flow.figure_files,
        notes=[str(Path(file).with_suffix(".json")) for file in flow.figure_files],
        dataset=flow.dataset,
        best=flow.path("summary", "best.parquet"),
        peak=flow.path("summary", "peak.json"),
        machine=[flow.path("model", "machine.json")] if "chase" in flow.workloads else [],
        device=flow.device_models,
        counted=flow.counted_files,
        energy=flow.energy_files,
        history=flow.history_files,
        chapters=[
            file if Path(file).is_relative_to(flow.results) else local(file)
            for chapter in flow.config.chapters.values()
            for files in chapter.plan.reads.values()
            for file in files
        ],
    output:
        facts=flow.path("report.json"),
        pdf=report(
            flow.path("report.pdf"),
            caption="../report/pdf.rst",
            category="Report",
            labels={"figure": "The whole report as a PDF"},
        ),
    params:
        code=code_of("report"),
        call="gpushmoo.report.build:build_report",
        spec=flow.report_params,
        template=flow.template_digest(),


use rule stage as explorer with:
    input:
        dataset=flow.dataset,
        device=flow.device_cells,
        history=flow.history_files,
        facts=flow.path("report.json"),
    output:
        report(
            flow.path("explorer.html"),
            caption="../report/explorer.rst",
            category="Explorer",
            labels={"page": "All cells"},
        ),
    params:
        code=code_of("explorer"),
        call="gpushmoo.explorer.explore:write_run_page",
        run=flow.config["run"],


# May fail, so that all else comes before it.
use rule stage as verdict with:
    input:
        report=flow.path("report.pdf"),
        facts=flow.path("report.json"),
        explorer=flow.path("explorer.html"),
        dataset=flow.dataset,
        others=flow.chapter_products,
    output:
        flow.path("summary", "verdict.txt"),
    params:
        code=code_of("report"),
        call="gpushmoo.report.tables:verdict",
        strict=flow.config["strict"],
        sweeps=flow.swept,


# The results for other programs; only where the target `export` asks for them.
use rule stage as export with:
    input:
        dataset=flow.dataset,
    output:
        directory(flow.path("export")),
    params:
        code=code_of("exporting"),
        call="gpushmoo.exporting.write:export_run",
        run=flow.config["run"],
