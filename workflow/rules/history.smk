# The run beside earlier ones; only where the key `history` names some.


use rule stage as history with:
    input:
        lambda _: history_inputs(flow),
        dataset=flow.dataset,
    output:
        tables=history_products(flow),
    log:
        flow.path("logs", "history.log"),
    benchmark:
        flow.path("benchmarks", "history.tsv")
    params:
        call="gpushmoo.comparing.history:write_history",
        spec=history_params(flow),


use rule stage as figure_history with:
    input:
        tables=history_products(flow),
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
    params:
        call="gpushmoo.figures.timelines:history_figure",
        note=figure_note,
