# Simulated devices: bandwidth over the number of blocks, and predictions of what was measured.


# Makes anew what the repository holds of what no measurement enters.
rule record:
    input:
        list(flow.constants),
    log:
        flow.path("logs", "record.log"),
    localrule: True
    conda:
        "../../environment.yml"
    params:
        constants=flow.constants,
    script:
        "../scripts/record.py"


rule simulate:
    output:
        flow.path("simulated", "{machine}-blocks.parquet"),
    log:
        flow.path("logs", "simulate-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "simulate-{machine}.tsv")
    localrule: True
    conda:
        "../../environment.yml"
    threads: 2
    params:
        spec=flow.simulation_params,
    script:
        "../scripts/simulate.py"


# A figure that the record holds is copied, not drawn.
rule recorded_figure_simulated:
    input:
        svg=lambda wildcards: placed("figures", f"simulated-{wildcards.machine}.svg"),
        note=lambda wildcards: placed("figures", f"simulated-{wildcards.machine}.json"),
    output:
        svg=report(
            flow.path("figures", "simulated-{machine}.svg"),
            caption="../report/figure.rst",
            category="Simulated devices",
            labels=figure_labels,
        ),
        note=flow.path("figures", "simulated-{machine}.json"),
    log:
        flow.path("logs", "figure-simulated-{machine}.log"),
    wildcard_constraints:
        machine=flow.recorded_machines("simulated"),
    localrule: True
    conda:
        "../../environment.yml"
    params:
        note=figure_note,
    shell:
        "(cp {input.svg:q} {output.svg:q} && cp {input.note:q} {output.note:q}) 2> {log:q}"


ruleorder: recorded_figure_simulated > figure_simulated


rule same_machine:
    input:
        flow.dataset,
    output:
        flow.path("simulated", "{machine}-measured.parquet"),
    log:
        flow.path("logs", "same-machine-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "same-machine-{machine}.tsv")
    localrule: True
    conda:
        "../../environment.yml"
    threads: 2
    params:
        spec=flow.simulation_params,
    script:
        "../scripts/same_machine.py"


rule figure_simulated:
    input:
        lambda wildcards: placed("simulated", f"{wildcards.machine}-blocks.parquet"),
    output:
        svg=report(
            flow.path("figures", "simulated-{machine}.svg"),
            caption="../report/figure.rst",
            category="Simulated devices",
            labels=figure_labels,
        ),
        note=flow.path("figures", "simulated-{machine}.json"),
    log:
        flow.path("logs", "figure-simulated-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "figure-simulated-{machine}.tsv")
    localrule: True
    conda:
        "../../environment.yml"
    params:
        note=figure_note,
    script:
        "../scripts/figure_simulated.py"


rule figure_same_machine:
    input:
        flow.path("simulated", "{machine}-measured.parquet"),
    output:
        svg=report(
            flow.path("figures", "same_machine-{machine}.svg"),
            caption="../report/figure.rst",
            category="The same machine, simulated",
            labels=figure_labels,
        ),
        note=flow.path("figures", "same_machine-{machine}.json"),
    log:
        flow.path("logs", "figure-same-machine-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "figure-same-machine-{machine}.tsv")
    localrule: True
    conda:
        "../../environment.yml"
    params:
        note=figure_note,
    script:
        "../scripts/figure_same_machine.py"
