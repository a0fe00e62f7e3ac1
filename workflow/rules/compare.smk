# Two runs, or more of both, held against each other: snakemake compare --config before=… after=…


rule compare:
    input:
        flow.compare_target,
    localrule: True


use rule stage as compared with:
    input:
        flow.compared_inputs,
    output:
        tables=flow.comparison_files,
    log:
        flow.path("logs", "compare.log"),
    benchmark:
        flow.path("benchmarks", "compare.tsv")
    localrule: True
    params:
        call="gpushmoo.report.comparison:compare_runs",
        spec=flow.compared_params,
        template=flow.template_digest(),


use rule stage as explore_compared with:
    input:
        flow.compared_inputs,
    output:
        flow.path("compare", "explorer.html"),
    log:
        flow.path("logs", "explore-compared.log"),
    benchmark:
        flow.path("benchmarks", "explore-compared.tsv")
    localrule: True
    params:
        call="gpushmoo.explorer.explore:explore_compared",
        spec=flow.compared_params,
        page=page_digest(),


# May fail, so that all else comes before it.
use rule stage as guard with:
    input:
        flow.comparison_files,
        flow.path("compare", "explorer.html"),
        groups=flow.path("compare", "groups.parquet"),
    output:
        flow.path("compare", "guard.txt"),
    log:
        flow.path("logs", "guard.log"),
    benchmark:
        flow.path("benchmarks", "guard.tsv")
    localrule: True
    params:
        call="gpushmoo.comparing.comparison:guard",


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
    localrule: True
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
    localrule: True
    params:
        call="gpushmoo.figures.timelines:history_figure",
        note=figure_note,
