# Two runs, or more of both, held against each other: snakemake compare --config before=… after=…


rule compare:
    input:
        flow.compare_target,
    localrule: True


rule compared:
    input:
        lambda wildcards: flow.compared_files,
    output:
        tables=flow.comparison_files,
    log:
        flow.path("logs", "compared.log"),
    benchmark:
        flow.path("benchmarks", "compared.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("report", scripts / "compared.py"),
        spec=flow.config.compared or {},
        template=flow.template_digest(),
    script:
        "../scripts/stages/compared.py"


# May fail, so that all else comes before it.
rule regression:
    input:
        flow.comparison_files,
        flow.extra_compared,
        groups=flow.path("compare", "groups.parquet"),
    output:
        flow.path("compare", "regression.txt"),
    log:
        flow.path("logs", "regression.log"),
    benchmark:
        flow.path("benchmarks", "regression.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("comparing", scripts / "regression.py"),
    script:
        "../scripts/stages/regression.py"
