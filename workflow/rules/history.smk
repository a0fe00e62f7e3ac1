# The run beside earlier ones; only where the key `history` names some.


rule history:
    input:
        lambda _: history_inputs(flow),
        dataset=flow.dataset,
    output:
        history_products(flow),
    log:
        flow.path("logs", "history.log"),
    benchmark:
        flow.path("benchmarks", "history.tsv")
    localrule: True
    conda:
        "../../environment.yml"
    params:
        spec=history_params(flow),
    script:
        "../scripts/history.py"


rule figure_history:
    input:
        history_products(flow),
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
        "../../environment.yml"
    params:
        note=figure_note,
    script:
        "../scripts/figure_history.py"
