# Measurements beside the sweeps, each of them only where the key `studies` names it.


# Takes the device as measuring does. Has no benchmark file for the same reason.
rule counters:
    input:
        explained=flow.device_models,
    output:
        flow.path("studies", "counters.parquet"),
        flow.path("studies", "counters.json"),
    log:
        flow.path("logs", "counters.log"),
    conda:
        device_environment
    resources:
        gpu=1,
    params:
        spec=lambda _: counters_params(flow),
        cache=flow.cache,
        backend=flow.backend_code,
    script:
        "../scripts/counters.py"


rule energy_cells:
    input:
        dataset=flow.dataset,
        best=flow.path("summary", "best.parquet"),
    output:
        flow.path("summary", "energy_cells.json"),
    log:
        flow.path("logs", "energy-cells.log"),
    benchmark:
        flow.path("benchmarks", "energy-cells.tsv")
    localrule: True
    conda:
        "../../environment.yml"
    params:
        left_out=flow.host_fed_kernels,
        controls=flow.control_variants,
    script:
        "../scripts/energy_cells.py"


# As `counters`.
rule energy:
    input:
        flow.path("summary", "energy_cells.json"),
    output:
        flow.path("studies", "energy.parquet"),
    log:
        flow.path("logs", "energy.log"),
    conda:
        device_environment
    resources:
        gpu=1,
    params:
        spec=lambda _: energy_params(flow),
        cache=flow.cache,
        backend=flow.backend_code,
    script:
        "../scripts/energy.py"
