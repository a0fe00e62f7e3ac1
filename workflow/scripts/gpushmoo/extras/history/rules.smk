# The run beside earlier ones, if the key `history` names some.


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
        code=code_of("comparing", *extra_code("history")),
        spec={"run": flow.config.settings.run, "earlier": flow.config.earlier},
    script:
        "scripts/history.py"


rule figure_history:
    input:
        tables=flow.history_tables,
    output:
        svg=report(
            flow.path("figures", "history.svg"),
            caption=figure_caption,
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
        code=code_of("figures", *extra_code("history")),
        note=figure_note,
    script:
        "scripts/figure_history.py"
