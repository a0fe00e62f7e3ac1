# Two runs, or more of both, held against each other: snakemake compare --config before=… after=…


rule compare:
    input:
        lambda _: compared_target(flow),
    localrule: True


use rule stage as compared with:
    input:
        lambda _: compared_inputs(flow),
    output:
        tables=compared_files(flow),
    log:
        flow.path("logs", "compare.log"),
    benchmark:
        flow.path("benchmarks", "compare.tsv")
    params:
        call="gpushmoo.report.comparison:compare_runs",
        spec=compared_params(flow),
        template=flow.template_digest(),


use rule stage as explore_compared with:
    input:
        lambda _: compared_inputs(flow),
    output:
        flow.path("compare", "explorer.html"),
    log:
        flow.path("logs", "explore-compared.log"),
    benchmark:
        flow.path("benchmarks", "explore-compared.tsv")
    params:
        call="gpushmoo.explorer.explore:explore_compared",
        spec=compared_params(flow),
        page=page_digest(),


# May fail, so that all else comes before it.
use rule stage as guard with:
    input:
        compared_files(flow),
        flow.path("compare", "explorer.html"),
        groups=flow.path("compare", "groups.parquet"),
    output:
        flow.path("compare", "guard.txt"),
    log:
        flow.path("logs", "guard.log"),
    benchmark:
        flow.path("benchmarks", "guard.tsv")
    params:
        call="gpushmoo.comparing.guarding:guard",
