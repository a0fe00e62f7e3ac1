# Simulated devices: bandwidth over the number of blocks, the first document's numbers, tables and
# figures, its open questions, and predictions of what was measured.


# On a cluster these run where Snakemake was started (see analyse.smk).
localrules:
    simulate,
    simulate_tables,
    simulate_questions,
    check_published,
    same_machine,
    figure_simulated,
    figure_questions,
    figure_float3,
    figure_same_machine,
    atlas,


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
        code=flow.code("model.simulate"),
    script:
        "../scripts/simulate.py"


rule simulate_tables:
    output:
        flow.path("simulated", "{machine}-tables.parquet"),
    log:
        flow.path("logs", "simulate-{machine}-tables.log"),
    conda:
        "../../environment.yml"
    threads: 2
    params:
        spec=flow.simulation_params,
        code=flow.code("model.simulate"),
    script:
        "../scripts/simulate_tables.py"


rule simulate_questions:
    output:
        cells=flow.path("simulated", "{machine}-questions.parquet"),
        profile=flow.path("simulated", "{machine}-profile.parquet"),
    log:
        flow.path("logs", "simulate-{machine}-questions.log"),
    conda:
        "../../environment.yml"
    threads: 2
    params:
        spec=flow.simulation_params,
        code=flow.code("model.questions"),
    script:
        "../scripts/simulate_questions.py"


rule check_published:
    output:
        flow.path("simulated", "{machine}-checks.json"),
    log:
        flow.path("logs", "check-published-{machine}.log"),
    conda:
        "../../environment.yml"
    params:
        spec=flow.simulation_params,
        code=flow.code("model.simulate"),
    script:
        "../scripts/check_published.py"


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
        code=flow.code("model.same_machine"),
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
    params:
        code=flow.code("figures.simulated"),
    script:
        "../scripts/figure_simulated.py"


rule figure_questions:
    input:
        flow.path("simulated", "{machine}-questions.parquet"),
    output:
        svg=flow.path("figures", "questions-{machine}.svg"),
        note=flow.path("figures", "questions-{machine}.json"),
    log:
        flow.path("logs", "figure-questions-{machine}.log"),
    conda:
        "../../environment.yml"
    params:
        code=flow.code("figures.questions"),
    script:
        "../scripts/figure_questions.py"


rule figure_float3:
    input:
        cells=flow.path("simulated", "{machine}-questions.parquet"),
        profile=flow.path("simulated", "{machine}-profile.parquet"),
    output:
        svg=flow.path("figures", "float3-{machine}.svg"),
        note=flow.path("figures", "float3-{machine}.json"),
    log:
        flow.path("logs", "figure-float3-{machine}.log"),
    conda:
        "../../environment.yml"
    params:
        code=flow.code("figures.float3"),
    script:
        "../scripts/figure_float3.py"


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
    params:
        code=flow.code("figures.same_machine"),
    script:
        "../scripts/figure_same_machine.py"


# The first document's figures, drawn from a simulated device.
rule atlas:
    output:
        pdf=flow.path("figures-{machine}.pdf"),
    log:
        flow.path("logs", "atlas-{machine}.log"),
    conda:
        "../../environment.yml"
    params:
        spec=flow.simulation_params,
        template=flow.template_digest(),
        listing=flow.listing_digest(),
        code=flow.code("report.atlas"),
    script:
        "../scripts/atlas.py"
