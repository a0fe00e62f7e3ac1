# The results for other programs; only where the target `export` asks for them.


rule export:
    input:
        dataset=flow.dataset,
    output:
        directory(flow.path("export")),
    log:
        flow.path("logs", "export.log"),
    benchmark:
        flow.path("benchmarks", "export.tsv")
    localrule: True
    conda:
        "../../environment.yml"
    params:
        run=flow.config.run,
    script:
        "../scripts/export.py"
