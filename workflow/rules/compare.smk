# Two runs, or more of both, held against each other: snakemake compare --config before=… after=…


rule compare:
    input:
        lambda _: compared_target(flow),
    localrule: True


rule compared:
    input:
        lambda _: compared_inputs(flow),
    output:
        compared_files(flow),
    log:
        flow.path("logs", "compare.log"),
    benchmark:
        flow.path("benchmarks", "compare.tsv")
    localrule: True
    conda:
        "../../environment.yml"
    params:
        spec=compared_params(flow),
        template=flow.template_digest(),
        page=page_digest(),
    script:
        "../scripts/compared.py"


# May fail, so that all else comes before it.
rule guard:
    input:
        compared_files(flow),
    output:
        flow.path("compare", "guard.txt"),
    log:
        flow.path("logs", "guard.log"),
    benchmark:
        flow.path("benchmarks", "guard.tsv")
    localrule: True
    conda:
        "../../environment.yml"
    script:
        "../scripts/guard.py"
