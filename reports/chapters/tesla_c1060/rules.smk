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
        spec=tesla_c1060.device,
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
        spec=tesla_c1060.device,
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
        spec=tesla_c1060.device,
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
        spec=tesla_c1060.device,
    script:
        "scripts/check_published.py"


rule figure_questions:
    input:
        flow.path("simulated", "{machine}-questions.parquet"),
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
        cells=flow.path("simulated", "{machine}-questions.parquet"),
        profile=flow.path("simulated", "{machine}-profile.parquet"),
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
        spec=tesla_c1060.device,
        template=flow.template_digest(),
        listing=tesla_c1060.listing_digest,
    script:
        "scripts/atlas.py"
