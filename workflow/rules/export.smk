# The results for other programs; only where the target `export` asks for them.


use rule stage as export with:
    input:
        dataset=flow.dataset,
    output:
        directory(flow.path("export")),
    log:
        flow.path("logs", "export.log"),
    benchmark:
        flow.path("benchmarks", "export.tsv")
    params:
        call="gpushmoo.exporting.write:export_run",
        run=flow.config.run,
