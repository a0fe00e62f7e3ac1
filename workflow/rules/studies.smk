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
        call="gpushmoo.studies.counters:count_of_run",
        spec=flow.counters_params,
        cache=flow.cache,
        backend=flow.backend_code,
    script:
        "../scripts/stage.py"


use rule stage as energy_cells with:
    input:
        dataset=flow.dataset,
        best=flow.path("summary", "best.parquet"),
    output:
        flow.path("summary", "energy_cells.json"),
    params:
        call="gpushmoo.analysis.energy:write_energy_cells",
        left_out=flow.host_fed_kernels,
        controls={n: list(w.controls) for n, w in flow.workloads.items() if w.controls},


# As `counters`.
rule energy:
    input:
        cells=flow.path("summary", "energy_cells.json"),
    output:
        flow.path("studies", "energy.parquet"),
    log:
        flow.path("logs", "energy.log"),
    conda:
        device_environment
    resources:
        gpu=1,
    params:
        call="gpushmoo.studies.energy:energy_of_run",
        spec=flow.energy_params,
        cache=flow.cache,
        backend=flow.backend_code,
    script:
        "../scripts/stage.py"
