# The document's numbers, tables and figures from the simulated device, and its open questions.
tesla_c1060 = flow.plan_of("tesla_c1060")


rule simulate_tables:
    output:
        flow.path("simulated", "{machine}-tables.parquet"),
    log:
        flow.path("logs", "simulate-{machine}-tables.log"),
    benchmark:
        flow.path("benchmarks", "simulate-{machine}-tables.tsv")
    localrule: True
    conda:
        "../../../environment.yml"
    threads: 2
    params:
        spec=tesla_c1060.asked.get("simulate_tables"),
    script:
        "scripts/simulate_tables.py"


rule simulate_questions:
    output:
        cells=flow.path("simulated", "{machine}-questions.parquet"),
        profile=flow.path("simulated", "{machine}-profile.parquet"),
    log:
        flow.path("logs", "simulate-{machine}-questions.log"),
    benchmark:
        flow.path("benchmarks", "simulate-{machine}-questions.tsv")
    localrule: True
    conda:
        "../../../environment.yml"
    threads: 2
    params:
        spec=tesla_c1060.asked.get("simulate_questions"),
    script:
        "scripts/simulate_questions.py"


rule simulate_tile_widths:
    output:
        flow.path("simulated", "{machine}-tiles.parquet"),
    log:
        flow.path("logs", "simulate-{machine}-tiles.log"),
    benchmark:
        flow.path("benchmarks", "simulate-{machine}-tiles.tsv")
    localrule: True
    conda:
        "../../../environment.yml"
    threads: 2
    params:
        spec=tesla_c1060.asked.get("simulate_tile_widths"),
    script:
        "scripts/simulate_tile_widths.py"


rule check_published:
    output:
        flow.path("simulated", "{machine}-checks.json"),
    log:
        flow.path("logs", "check-published-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "check-published-{machine}.tsv")
    localrule: True
    conda:
        "../../../environment.yml"
    params:
        spec=tesla_c1060.asked.get("check_published"),
    script:
        "scripts/check_published.py"


rule figure_questions:
    input:
        lambda wildcards: placed("simulated", f"{wildcards.machine}-questions.parquet"),
    output:
        svg=report(
            flow.path("figures", "questions-{machine}.svg"),
            caption="../../../workflow/report/figure.rst",
            category="The first document beside ours",
            labels=figure_labels,
        ),
        note=flow.path("figures", "questions-{machine}.json"),
    log:
        flow.path("logs", "figure-questions-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "figure-questions-{machine}.tsv")
    localrule: True
    conda:
        "../../../environment.yml"
    params:
        note=figure_note,
    script:
        "scripts/figure_questions.py"


rule figure_float3:
    input:
        cells=lambda wildcards: placed("simulated", f"{wildcards.machine}-questions.parquet"),
        profile=lambda wildcards: placed("simulated", f"{wildcards.machine}-profile.parquet"),
    output:
        svg=report(
            flow.path("figures", "float3-{machine}.svg"),
            caption="../../../workflow/report/figure.rst",
            category="The first document beside ours",
            labels=figure_labels,
        ),
        note=flow.path("figures", "float3-{machine}.json"),
    log:
        flow.path("logs", "figure-float3-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "figure-float3-{machine}.tsv")
    localrule: True
    conda:
        "../../../environment.yml"
    params:
        note=figure_note,
    script:
        "scripts/figure_float3.py"


rule atlas:
    output:
        pdf=report(
            flow.path("figures-{machine}.pdf"),
            caption="atlas.rst",
            category="The first document beside ours",
            labels={"figure": "Every figure of the document, drawn again"},
        ),
    log:
        flow.path("logs", "atlas-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "atlas-{machine}.tsv")
    localrule: True
    conda:
        "../../../environment.yml"
    params:
        spec=tesla_c1060.asked.get("atlas"),
    script:
        "scripts/atlas.py"


# Figures that the record holds are copied, not drawn.
rule recorded_figure_c1060:
    input:
        svg=lambda wildcards: placed("figures", f"{wildcards.kind}-{wildcards.machine}.svg"),
        note=lambda wildcards: placed("figures", f"{wildcards.kind}-{wildcards.machine}.json"),
    output:
        svg=report(
            flow.path("figures", "{kind}-{machine}.svg"),
            caption="../../../workflow/report/figure.rst",
            category="The first document beside ours",
            labels=figure_labels,
        ),
        note=flow.path("figures", "{kind}-{machine}.json"),
    log:
        flow.path("logs", "figure-{kind}-{machine}.log"),
    wildcard_constraints:
        kind="questions|float3",
        machine=flow.recorded_machines("questions"),
    localrule: True
    conda:
        "../../../environment.yml"
    params:
        note=figure_note,
    shell:
        "(cp {input.svg:q} {output.svg:q} && cp {input.note:q} {output.note:q}) 2> {log:q}"


rule recorded_atlas:
    input:
        lambda wildcards: placed(f"figures-{wildcards.machine}.pdf"),
    output:
        pdf=report(
            flow.path("figures-{machine}.pdf"),
            caption="atlas.rst",
            category="The first document beside ours",
            labels={"figure": "Every figure of the document, drawn again"},
        ),
    log:
        flow.path("logs", "atlas-{machine}.log"),
    wildcard_constraints:
        machine=flow.recorded_machines("figures"),
    localrule: True
    conda:
        "../../../environment.yml"
    shell:
        "cp {input:q} {output:q} 2> {log:q}"


ruleorder: recorded_figure_c1060 > figure_questions
ruleorder: recorded_figure_c1060 > figure_float3
ruleorder: recorded_atlas > atlas
