# The page of all cells, of a run and of two that are compared.


rule explorer:
    input:
        dataset=flow.dataset,
        device=flow.device_cells,
        history=flow.history_files,
        facts=flow.path("report.json"),
    output:
        report(
            flow.path("explorer.html"),
            caption="explorer.rst",
            category="Explorer",
            labels={"page": "All cells"},
        ),
    log:
        flow.path("logs", "explorer.log"),
    benchmark:
        flow.path("benchmarks", "explorer.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("figures", *extra_code("explorer")),
        run=flow.config.settings.run,
    script:
        "scripts/explorer.py"


rule explore_compared:
    input:
        lambda wildcards: flow.compared_files,
    output:
        flow.path("compare", "explorer.html"),
    log:
        flow.path("logs", "explore-compared.log"),
    benchmark:
        flow.path("benchmarks", "explore-compared.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("figures", *extra_code("explorer")),
        spec=flow.config.compared or {},
    script:
        "scripts/explore_compared.py"
