# The document's numbers, tables and figures from the simulated device, and its open questions.
tesla_c1060 = flow.plan_of("tesla_c1060")


# On a cluster these run where Snakemake was started.
localrules:
    simulate_tables,
    simulate_questions,
    simulate_tile_widths,
    check_published,
    figure_questions,
    figure_float3,
    atlas,


rule simulate_tables:
    output:
        flow.path("simulated", "{machine}-tables.parquet"),
    log:
        flow.path("logs", "simulate-{machine}-tables.log"),
    conda:
        "../../../environment.yml"
    threads: 2
    params:
        spec=tesla_c1060.device,
    script:
        "scripts/simulate_tables.py"


rule simulate_questions:
    output:
        cells=flow.path("simulated", "{machine}-questions.parquet"),
        profile=flow.path("simulated", "{machine}-profile.parquet"),
    log:
        flow.path("logs", "simulate-{machine}-questions.log"),
    conda:
        "../../../environment.yml"
    threads: 2
    params:
        spec=tesla_c1060.device,
    script:
        "scripts/simulate_questions.py"


rule simulate_tile_widths:
    output:
        flow.path("simulated", "{machine}-tiles.parquet"),
    log:
        flow.path("logs", "simulate-{machine}-tiles.log"),
    conda:
        "../../../environment.yml"
    threads: 2
    params:
        spec=tesla_c1060.device,
    script:
        "scripts/simulate_tile_widths.py"


rule check_published:
    output:
        flow.path("simulated", "{machine}-checks.json"),
    log:
        flow.path("logs", "check-published-{machine}.log"),
    conda:
        "../../../environment.yml"
    params:
        spec=tesla_c1060.device,
    script:
        "scripts/check_published.py"


rule figure_questions:
    input:
        flow.path("simulated", "{machine}-questions.parquet"),
    output:
        svg=flow.path("figures", "questions-{machine}.svg"),
        note=flow.path("figures", "questions-{machine}.json"),
    log:
        flow.path("logs", "figure-questions-{machine}.log"),
    conda:
        "../../../environment.yml"
    script:
        "scripts/figure_questions.py"


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
        "../../../environment.yml"
    script:
        "scripts/figure_float3.py"


rule atlas:
    output:
        pdf=flow.path("figures-{machine}.pdf"),
    log:
        flow.path("logs", "atlas-{machine}.log"),
    conda:
        "../../../environment.yml"
    params:
        spec=tesla_c1060.device,
        template=flow.template_digest(),
        listing=tesla_c1060.listing_digest,
    script:
        "scripts/atlas.py"
