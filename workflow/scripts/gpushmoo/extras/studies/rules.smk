from gpushmoo.extras.studies import energy_files

# Measurements beside the sweeps, each of them only if the key `studies` names it. Nothing is
# measured beside a recorded data set.
if flow.config.dataset is None:

    # Takes the device as rule `measure` does, and has no benchmark file for the same reason.
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
            code=code_of("studies", *extra_code("studies", "scripts/counters.py", "counters.py")),
            job=lambda wildcards: flow.study_job.plain,
            cache=flow.cache,
        script:
            "scripts/counters.py"

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
            environment
        params:
            code=code_of(
                "analysis", *extra_code("studies", "scripts/energy_cells.py", "energy_table.py")
            ),
            left_out=flow.host_fed_kernels,
            controls={n: list(w.controls) for n, w in flow.workloads.items() if w.controls},
        script:
            "scripts/energy_cells.py"

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
            code=code_of("studies", *extra_code("studies", "scripts/energy.py", "energy.py")),
            job=lambda wildcards: flow.study_job.plain,
            cache=flow.cache,
        script:
            "scripts/energy.py"


# Only in runs with the study of energy, or with a recorded one.
rule figure_energy:
    input:
        energy=energy_files(flow),
    output:
        svg=report(
            flow.path("figures", "energy.svg"),
            caption=figure_caption,
            category="Energy",
            labels=figure_labels,
        ),
        note=flow.path("figures", "energy.json"),
    log:
        flow.path("logs", "figure-energy.log"),
    benchmark:
        flow.path("benchmarks", "figure-energy.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of(
            "figures",
            *extra_code("studies", "scripts/figure_energy.py", "figure.py", "energy_table.py"),
        ),
        note=figure_note,
    script:
        "scripts/figure_energy.py"
