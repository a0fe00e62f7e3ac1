# Simulated devices: bandwidth over the number of blocks, and predictions of what was measured.


# On a cluster these run where Snakemake was started (see analyse.smk).
localrules:
    simulate,
    same_machine,
    figure_simulated,
    figure_same_machine,


rule simulate:
    output:
        flow.path("simulated", "{machine}-blocks.parquet"),
    log:
        flow.path("logs", "simulate-{machine}.log"),
    conda:
        "../../environment.yml"
    threads: 2
    params:
        spec=flow.simulation_params,
    script:
        "../scripts/simulate.py"


rule same_machine:
    input:
        flow.dataset,
    output:
        flow.path("simulated", "{machine}-measured.parquet"),
    log:
        flow.path("logs", "same-machine-{machine}.log"),
    conda:
        "../../environment.yml"
    threads: 2
    params:
        spec=flow.simulation_params,
    script:
        "../scripts/same_machine.py"


rule figure_simulated:
    input:
        flow.path("simulated", "{machine}-blocks.parquet"),
    output:
        svg=flow.path("figures", "simulated-{machine}.svg"),
        note=flow.path("figures", "simulated-{machine}.json"),
    log:
        flow.path("logs", "figure-simulated-{machine}.log"),
    conda:
        "../../environment.yml"
    script:
        "../scripts/figure_simulated.py"


rule figure_same_machine:
    input:
        flow.path("simulated", "{machine}-measured.parquet"),
    output:
        svg=flow.path("figures", "same_machine-{machine}.svg"),
        note=flow.path("figures", "same_machine-{machine}.json"),
    log:
        flow.path("logs", "figure-same-machine-{machine}.log"),
    conda:
        "../../environment.yml"
    script:
        "../scripts/figure_same_machine.py"
