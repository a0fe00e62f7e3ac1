# Two runs, or more of both, held against each other: snakemake compare --config before=… after=…


rule compare:
    input:
        flow.compare_target,
    localrule: True


use rule stage as compared with:
    input:
        lambda wildcards: flow.compared_files,
    output:
        tables=flow.comparison_files,
    params:
        code=code_of("report"),
        call="gpushmoo.report.build:compare_runs",
        spec=flow.config.compared or {},
        template=flow.template_digest(),


use rule stage as explore_compared with:
    input:
        lambda wildcards: flow.compared_files,
    output:
        flow.path("compare", "explorer.html"),
    params:
        code=code_of("explorer"),
        call="gpushmoo.explorer.explore:explore_compared",
        spec=flow.config.compared or {},


# May fail, so that all else comes before it.
use rule stage as regression with:
    input:
        flow.comparison_files,
        flow.path("compare", "explorer.html"),
        groups=flow.path("compare", "groups.parquet"),
    output:
        flow.path("compare", "regression.txt"),
    params:
        code=code_of("comparing"),
        call="gpushmoo.comparing.compare:regression",


# The run beside earlier ones; only where the key `history` names some.
use rule stage as history with:
    input:
        lambda wildcards: flow.earlier_files,
        dataset=flow.dataset,
    output:
        tables=flow.history_tables,
    params:
        code=code_of("comparing"),
        call="gpushmoo.comparing.history:write_history",
        spec={"run": flow.config["run"], **(flow.config.earlier or {})},


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
    params:
        code=code_of("figures"),
        call="gpushmoo.figures.runs:history_figure",
        note=figure_note,
