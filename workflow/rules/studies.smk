# Single runs beside the sweeps: what copies and kernels do when, and how far results are from exact.


rule timeline:
    output:
        flow.path("studies", "timeline.parquet"),
    log:
        flow.path("logs", "timeline.log"),
    conda:
        "../../environment.yml"
    threads: flow.all_cores
    resources:
        gpu=1,
    params:
        spec=flow.study_params("timeline"),
        cache=flow.cache,
        code=flow.code("study_job"),
    script:
        "../scripts/timeline.py"


rule errors:
    output:
        flow.path("studies", "errors.parquet"),
    log:
        flow.path("logs", "errors.log"),
    conda:
        "../../environment.yml"
    threads: flow.all_cores
    resources:
        gpu=1,
    params:
        spec=flow.study_params("errors"),
        cache=flow.cache,
        code=flow.code("study_job"),
    script:
        "../scripts/errors.py"
