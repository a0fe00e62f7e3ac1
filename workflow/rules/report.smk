# Figures of measured cells, the report, and the verdict on faults.


# On a cluster these run where Snakemake was started (see analyse.smk).
localrules:
    figure,
    figure_dot,
    figure_study,
    report,
    verdict,


rule figure:
    input:
        dataset=flow.dataset,
        predictions=flow.path("model", "predictions.parquet"),
        ceiling=flow.path("summary", "ceiling.json"),
        shapes=flow.path("model", "shapes.json"),
        shape_cells=flow.path("model", "shapes.parquet"),
    output:
        svg=flow.path("figures", "{kind}-{rest}.svg"),
        note=flow.path("figures", "{kind}-{rest}.json"),
    log:
        flow.path("logs", "figure-{kind}-{rest}.log"),
    conda:
        "../../environment.yml"
    params:
        spec=flow.figure_params,
        code=lambda wildcards: flow.code(f"figures.{wildcards.kind}"),
    script:
        "../scripts/figure.py"


rule figure_dot:
    input:
        dataset=flow.dataset,
    output:
        svg=flow.path("figures", "dot-{plot}.svg"),
        note=flow.path("figures", "dot-{plot}.json"),
    log:
        flow.path("logs", "figure-dot-{plot}.log"),
    conda:
        "../../environment.yml"
    params:
        published=flow.template_digest(),
        code=[flow.code("figures.dot"), flow.code("analysis.dots")],
    script:
        "../scripts/figure_dot.py"


rule figure_study:
    input:
        # A recorded study lies here, wherever the results go.
        lambda wildcards: (
            local(flow.study_file(wildcards.study))
            if flow.config.dataset
            else flow.study_file(wildcards.study)
        ),
    output:
        svg=flow.path("figures", "{study}-dot.svg"),
        note=flow.path("figures", "{study}-dot.json"),
    log:
        flow.path("logs", "figure-{study}-dot.log"),
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: flow.code(f"figures.{wildcards.study}"),
    script:
        "../scripts/figure_study.py"


rule report:
    input:
        figures=flow.figure_files,
        notes=flow.figure_notes,
        dataset=flow.dataset,
        best=flow.path("summary", "best.parquet"),
        ceiling=flow.path("summary", "ceiling.json"),
        model=flow.path("model", "params.json"),
        shapes=flow.path("model", "shapes.json"),
        checks=flow.simulated_files("checks.json"),
        tables=flow.simulated_files("tables.parquet"),
        questions=flow.simulated_files("questions.parquet"),
        measured=flow.simulated_files("measured.parquet"),
    output:
        facts=flow.path("report.json"),
        pdf=flow.path("report.pdf"),
    log:
        flow.path("logs", "report.log"),
    conda:
        "../../environment.yml"
    params:
        spec=flow.report_params,
        template=flow.template_digest(),
        code=flow.code("report.build"),
    script:
        "../scripts/report.py"


# May fail, so that all else comes before it.
rule verdict:
    input:
        report=flow.path("report.pdf"),
        dataset=flow.dataset,
        others=[*flow.atlas_files, *(flow.machine_code_files if flow.measures_on_cuda else [])],
    output:
        flow.path("summary", "verdict.txt"),
    log:
        flow.path("logs", "verdict.log"),
    conda:
        "../../environment.yml"
    params:
        strict=flow.config.strict,
        sweeps=flow.swept,
        code=flow.code("analysis.statuses"),
    script:
        "../scripts/verdict.py"
