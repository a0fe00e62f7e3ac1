# Simulated devices: bandwidth over the number of blocks, and the published figures recomputed.


rule simulate:
    output:
        cells=flow.path("simulated", "{machine}.parquet"),
        checks=flow.path("simulated", "{machine}-checks.json"),
    log:
        flow.path("logs", "simulate-{machine}.log"),
    conda:
        "../../environment.yml"
    params:
        spec=flow.simulation_params,
        code=flow.code("model.simulate"),
    script:
        "../scripts/simulate.py"


rule figure_simulated:
    input:
        cells=flow.path("simulated", "{machine}.parquet"),
    output:
        svg=flow.path("figures", "simulated-{machine}.svg"),
        note=flow.path("figures", "simulated-{machine}.json"),
    log:
        flow.path("logs", "figure-simulated-{machine}.log"),
    conda:
        "../../environment.yml"
    params:
        code=flow.code("figures.simulated"),
    script:
        "../scripts/figure_simulated.py"


rule figure_gantt:
    output:
        svg=flow.path("figures", "gantt-{machine}.svg"),
        note=flow.path("figures", "gantt-{machine}.json"),
    log:
        flow.path("logs", "figure-gantt-{machine}.log"),
    conda:
        "../../environment.yml"
    params:
        spec=flow.simulation_params,
        code=flow.code("figures.gantt"),
    script:
        "../scripts/figure_gantt.py"
