# Two runs, or more of both, held against each other: snakemake compare --config before=… after=…


rule compare:
    input:
        flow.compare_target,
    localrule: True


rule compared:
    input:
        lambda wildcards: flow.compared_files,
    output:
        tables=flow.comparison_files,
    log:
        flow.path("logs", "compared.log"),
    benchmark:
        flow.path("benchmarks", "compared.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("report", scripts / "compared.py"),
        spec=flow.config.compared or {},
        template=flow.template_digest(),
    script:
        "../scripts/stages/compared.py"


# May fail, so that all else comes before it.
rule regression:
    input:
        flow.comparison_files,
        flow.extra_compared,
        groups=flow.path("compare", "groups.parquet"),
    output:
        flow.path("compare", "regression.txt"),
    log:
        flow.path("logs", "regression.log"),
    benchmark:
        flow.path("benchmarks", "regression.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("comparing", scripts / "regression.py"),
    script:
        "../scripts/stages/regression.py"


# The run beside earlier ones; only where the key `history` names some.
rule history:
    input:
        lambda wildcards: flow.earlier_files,
        dataset=flow.dataset,
    output:
        tables=flow.history_tables,
    log:
        flow.path("logs", "history.log"),
    benchmark:
        flow.path("benchmarks", "history.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("comparing", scripts / "history.py"),
        spec={"run": flow.config.settings.run, "earlier": flow.config.earlier},
    script:
        "../scripts/stages/history.py"


rule figure_history:
    input:
        tables=flow.history_tables,
    output:
        svg=report(
            flow.path("figures", "history.svg"),
            caption="../report/figure.rst",
            category="History",
            labels=figure_labels,
        ),
        note=flow.path("figures", "history.json"),
    log:
        flow.path("logs", "figure-history.log"),
    benchmark:
        flow.path("benchmarks", "figure-history.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("figures", scripts / "figure_history.py"),
        note=figure_note,
    script:
        "../scripts/stages/figure_history.py"
