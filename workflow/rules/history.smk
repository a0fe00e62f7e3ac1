# The run beside earlier ones; only where the key `history` names some.


use rule stage as history with:
    input:
        flow.history_inputs,
        dataset=flow.dataset,
    output:
        tables=flow.history_tables,
    log:
        flow.path("logs", "history.log"),
    benchmark:
        flow.path("benchmarks", "history.tsv")
    params:
        call="gpushmoo.comparing.history:write_history",
        spec=flow.history_params,


use rule stage as figure_history with:
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
    params:
        call="gpushmoo.figures.timelines:history_figure",
        note=figure_note,
