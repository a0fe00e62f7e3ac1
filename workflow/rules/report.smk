# Shards into one dataset, the device's peak, the best cells and the models. Seconds to a
# minute of one core each: as local rules, since on a cluster not worth a job's start, let alone a GPU.


rule aggregate:
    input:
        # A recorded data set lies here, wherever the results go.
        shards=local(flow.shard_files) if flow.config.dataset else flow.shard_files,
    output:
        directory(flow.dataset),
    log:
        flow.path("logs", "aggregate.log"),
    benchmark:
        flow.path("benchmarks", "aggregate.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("analysis", scripts / "aggregate.py"),
        # Recorded ones may be of several: their names keep them apart.
        one_model=flow.config.dataset is None,
        # The shards of a recorded data set tell their own.
        plan=None if flow.config.dataset else flow.plan.as_plain(),
    script:
        "../scripts/stages/aggregate.py"


rule peak:
    input:
        dataset=flow.dataset,
    output:
        flow.path("summary", "peak.json"),
    log:
        flow.path("logs", "peak.log"),
    benchmark:
        flow.path("benchmarks", "peak.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("analysis", scripts / "peak.py"),
        kinds=flow.peak_kernels,
    script:
        "../scripts/stages/peak.py"


rule best:
    input:
        dataset=flow.dataset,
        peak=flow.path("summary", "peak.json"),
    output:
        flow.path("summary", "best.parquet"),
    log:
        flow.path("logs", "best.log"),
    benchmark:
        flow.path("benchmarks", "best.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("analysis", scripts / "best.py"),
        host_fed=flow.host_fed_kernels,
        limits=flow.limits,
    script:
        "../scripts/stages/best.py"


# Only in runs that sweep `chase`.
rule machine:
    input:
        dataset=flow.dataset,
    output:
        flow.path("model", "machine.json"),
    log:
        flow.path("logs", "machine.log"),
    benchmark:
        flow.path("benchmarks", "machine.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("model", scripts / "machine.py"),
    script:
        "../scripts/stages/machine.py"


rule device_model:
    input:
        dataset=flow.dataset,
        code=flow.recorded_beside("code_paths.json"),
    output:
        fits=flow.path("model", "device.json"),
        table=flow.path("model", "device.parquet"),
    log:
        flow.path("logs", "device-model.log"),
    benchmark:
        flow.path("benchmarks", "device-model.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("model", scripts / "device_model.py"),
        folders=flow.kernel_places,
        # The model asks kernels' Python what threads access.
        workloads=flow.workload_code,
    script:
        "../scripts/stages/device_model.py"


# Figures of measured cells, the report, and the verdict on faults.


rule figure:
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
    log:
        flow.path("logs", "figure-{figure}.log"),
    benchmark:
        flow.path("benchmarks", "figure-{figure}.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("figures", scripts / "figure.py"),
        note=figure_note,
        job=lambda wildcards: flow.figure_job(wildcards).plain,
        views=lambda wildcards: flow.figure(wildcards).code,
    script:
        "../scripts/stages/figure.py"


rule report:
    input:
        unpack(flow.section_inputs),
        figures=flow.figure_files,
        notes=[str(Path(file).with_suffix(".json")) for file in flow.figure_files],
        dataset=flow.dataset,
        best=flow.path("summary", "best.parquet"),
        peak=flow.path("summary", "peak.json"),
        machine=[flow.path("model", "machine.json")] if "chase" in flow.workloads else [],
        device=flow.device_models,
        counted=flow.counted_files,
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
    log:
        flow.path("logs", "report.log"),
    benchmark:
        flow.path("benchmarks", "report.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("report", scripts / "report.py", *code_of_extras("section")),
        spec=flow.report_params,
        template=flow.template_digest(),
    script:
        "../scripts/stages/report.py"


# May fail, so that all else comes before it.
rule verdict:
    input:
        report=flow.path("report.pdf"),
        facts=flow.path("report.json"),
        extras=flow.extra_products,
        dataset=flow.dataset,
        others=flow.chapter_products,
    output:
        flow.path("summary", "verdict.txt"),
    log:
        flow.path("logs", "verdict.log"),
    benchmark:
        flow.path("benchmarks", "verdict.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("report", scripts / "verdict.py"),
        strict=flow.config.settings.strict,
        sweeps=flow.swept,
    script:
        "../scripts/stages/verdict.py"


# The results for other programs; only where the target `export` asks for them.
rule export:
    input:
        dataset=flow.dataset,
    output:
        directory(flow.path("export")),
    log:
        flow.path("logs", "export.log"),
    benchmark:
        flow.path("benchmarks", "export.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("exporting", scripts / "export.py", *code_of_extras("formats")),
        run=flow.config.settings.run,
    script:
        "../scripts/stages/export.py"
