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
