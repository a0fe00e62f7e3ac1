# The document's plots with ours in them, and single runs beside the sweeps: what copies and kernels
# do when, and how far results are from exact.
streamed_dot = flow.plan_of("streamed_dot")


wildcard_constraints:
    study="timeline|errors|rivals",


if flow.config.dataset is None:

    rule study_dot:
        output:
            flow.path("studies", "{study}.parquet"),
        log:
            flow.path("logs", "{study}.log"),
        # Before the figures, which run beside each other.
        priority: 1
        conda:
            device_environment
        # Of errors nothing is timed.
        threads: lambda wildcards: 1 if wildcards.study == "errors" else flow.all_cores
        resources:
            gpu=1,
        params:
            code=code_of(
                "studies",
                flow.chapter_folder("streamed_dot") / "scripts/study_dot.py",
                *streamed_dot.studying,
            ),
            study=lambda wildcards: wildcards.study,
            spec=lambda wildcards: streamed_dot.study_params(wildcards.study, flow.job_device),
            cache=flow.cache,
        script:
            "scripts/study_dot.py"


rule figure_dot:
    input:
        dataset=flow.dataset,
    output:
        svg=report(
            flow.path("figures", "dot-{plot}.svg"),
            caption="../../../workflow/report/figure.rst",
            category="Dot product of data on the host",
            labels=figure_labels,
        ),
        note=flow.path("figures", "dot-{plot}.json"),
    log:
        flow.path("logs", "figure-dot-{plot}.log"),
    benchmark:
        flow.path("benchmarks", "figure-dot-{plot}.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("figures", flow.chapter_folder("streamed_dot")),
        plot=lambda wildcards: wildcards.plot,
        note=figure_note,
        published=flow.template_digest(),
    script:
        "scripts/figure_dot.py"


rule figure_study:
    input:
        # A recorded study lies here, wherever the results go.
        table=lambda wildcards: (
            local(streamed_dot.files[wildcards.study])
            if flow.config.dataset
            else streamed_dot.files[wildcards.study]
        ),
    output:
        svg=report(
            flow.path("figures", "{study}-dot.svg"),
            caption="../../../workflow/report/figure.rst",
            category="Dot product of data on the host",
            labels=figure_labels,
        ),
        note=flow.path("figures", "{study}-dot.json"),
    log:
        flow.path("logs", "figure-study-{study}.log"),
    benchmark:
        flow.path("benchmarks", "figure-study-{study}.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("figures", flow.chapter_folder("streamed_dot")),
        study=lambda wildcards: wildcards.study,
        note=figure_note,
    script:
        "scripts/figure_study.py"
