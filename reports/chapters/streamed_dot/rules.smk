# The document's plots with ours in them, and single runs beside the sweeps: what copies and kernels
# do when, and how far results are from exact.
streamed_dot = flow.plan_of("streamed_dot")


wildcard_constraints:
    study="timeline|errors|rivals",


# On a cluster these run where Snakemake was started.
localrules:
    figure_dot,
    figure_study,


if flow.config.dataset is None:

    rule timeline:
        output:
            flow.path("studies", "timeline.parquet"),
        log:
            flow.path("logs", "timeline.log"),
        conda:
            "../../../environment.yml"
        threads: flow.all_cores
        resources:
            gpu=1,
        params:
            spec=lambda _: streamed_dot.study_params("timeline", flow.job_device),
            cache=flow.cache,
            backend=flow.backend_code,
        script:
            "scripts/timeline.py"

    rule errors:
        output:
            flow.path("studies", "errors.parquet"),
        log:
            flow.path("logs", "errors.log"),
        conda:
            "../../../environment.yml"
        threads: flow.all_cores
        resources:
            gpu=1,
        params:
            spec=lambda _: streamed_dot.study_params("errors", flow.job_device),
            cache=flow.cache,
            backend=flow.backend_code,
        script:
            "scripts/errors.py"

    rule rivals:
        output:
            flow.path("studies", "rivals.parquet"),
        log:
            flow.path("logs", "rivals.log"),
        conda:
            "../../../environment.yml"
        threads: flow.all_cores
        resources:
            gpu=1,
        params:
            spec=lambda _: streamed_dot.study_params("rivals", flow.job_device),
            cache=flow.cache,
            backend=flow.backend_code,
        script:
            "scripts/rivals.py"


rule figure_dot:
    input:
        dataset=flow.dataset,
    output:
        svg=flow.path("figures", "dot-{plot}.svg"),
        note=flow.path("figures", "dot-{plot}.json"),
    log:
        flow.path("logs", "figure-dot-{plot}.log"),
    conda:
        "../../../environment.yml"
    params:
        published=flow.template_digest(),
    script:
        "scripts/figure_dot.py"


rule figure_study:
    input:
        # A recorded study lies here, wherever the results go.
        lambda wildcards: (
            local(streamed_dot.study_file(wildcards.study))
            if flow.config.dataset
            else streamed_dot.study_file(wildcards.study)
        ),
    output:
        svg=flow.path("figures", "{study}-dot.svg"),
        note=flow.path("figures", "{study}-dot.json"),
    log:
        flow.path("logs", "figure-{study}-dot.log"),
    conda:
        "../../../environment.yml"
    script:
        "scripts/figure_study.py"
