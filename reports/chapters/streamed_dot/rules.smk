# The document's plots with ours in them, and single runs beside the sweeps: what copies and kernels
# do when, and how far results are from exact.
streamed_dot = flow.plan_of("streamed_dot")


wildcard_constraints:
    study="timeline|errors|rivals",


if flow.config.dataset is None:

    rule timeline:
        output:
            flow.path("studies", "timeline.parquet"),
        log:
            flow.path("logs", "timeline.log"),
        # Before the figures, which run beside each other.
        priority: 1
        conda:
            device_environment
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
            device_environment
        # Nothing is timed.
        threads: 1
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
        # Before the figures, which run beside each other.
        priority: 1
        conda:
            device_environment
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
        svg=report(
            flow.path("figures", "dot-{plot}.svg"),
            caption="../../../workflow/report/figure.rst",
            category="The third document beside ours",
            labels=figure_labels,
        ),
        note=flow.path("figures", "dot-{plot}.json"),
    log:
        flow.path("logs", "figure-dot-{plot}.log"),
    benchmark:
        flow.path("benchmarks", "figure-dot-{plot}.tsv")
    localrule: True
    conda:
        "../../../environment.yml"
    params:
        note=figure_note,
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
        svg=report(
            flow.path("figures", "{study}-dot.svg"),
            caption="../../../workflow/report/figure.rst",
            category="The third document beside ours",
            labels=figure_labels,
        ),
        note=flow.path("figures", "{study}-dot.json"),
    log:
        flow.path("logs", "figure-{study}-dot.log"),
    benchmark:
        flow.path("benchmarks", "figure-{study}-dot.tsv")
    localrule: True
    conda:
        "../../../environment.yml"
    params:
        note=figure_note,
    script:
        "scripts/figure_study.py"
