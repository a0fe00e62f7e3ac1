# Simulated devices, what the first document asks of its own, and figures of both. What the record
# holds is copied, not made.
tesla_c1060 = flow.plan_of("tesla_c1060")


wildcard_constraints:
    machine="[A-Za-z0-9][A-Za-z0-9._-]*",


# Makes anew what the repository holds of what no measurement enters.
rule record:
    input:
        list(tesla_c1060.constants),
    log:
        flow.path("logs", "record.log"),
    benchmark:
        flow.path("benchmarks", "record.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("planning", flow.chapter_folder("tesla_c1060")),
        constants=tesla_c1060.constants,
    script:
        "scripts/record.py"


rule simulate:
    output:
        flow.path("simulated", "{machine}-{kind}.parquet"),
    log:
        flow.path("logs", "simulate-{kind}-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "simulate-{kind}-{machine}.tsv")
    wildcard_constraints:
        kind="blocks|tables|search|profile|tiles",
    localrule: True
    conda:
        environment
    # The search is minutes of one core.
    threads: lambda wildcards: 16 if wildcards.kind == "search" else 2
    params:
        code=code_of(
            "storage",
            flow.chapter_folder("tesla_c1060") / "scripts/simulate.py",
            *tesla_c1060.simulating,
        ),
        asked=lambda wildcards: tesla_c1060.asked_for(
            f"simulated/{wildcards.machine}-{wildcards.kind}.parquet"
        ),
    script:
        "scripts/simulate.py"


rule same_machine:
    input:
        dataset=flow.dataset,
    output:
        flow.path("simulated", "{machine}-measured.parquet"),
    log:
        flow.path("logs", "same-machine-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "same-machine-{machine}.tsv")
    localrule: True
    conda:
        environment
    threads: 2
    params:
        code=code_of(
            "storage",
            flow.chapter_folder("tesla_c1060") / "scripts/same_machine.py",
            *tesla_c1060.simulating,
        ),
        asked=lambda wildcards: tesla_c1060.asked_for(
            f"simulated/{wildcards.machine}-measured.parquet"
        ),
    script:
        "scripts/same_machine.py"


rule check_published:
    output:
        flow.path("simulated", "{machine}-checks.json"),
    log:
        flow.path("logs", "check-published-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "check-published-{machine}.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of(
            "storage",
            flow.chapter_folder("tesla_c1060") / "scripts/check_published.py",
            *tesla_c1060.drawing,
        ),
        asked=lambda wildcards: tesla_c1060.asked_for(f"simulated/{wildcards.machine}-checks.json"),
    script:
        "scripts/check_published.py"


rule figure_simulated:
    input:
        sources=lambda wildcards: [
            local(file) if file in tesla_c1060.recorded.values() else file
            for file in tesla_c1060.drawn_from(wildcards)
        ],
    output:
        svg=report(
            flow.path("figures", "{kind}-{machine}.svg"),
            caption="../../../workflow/report/figure.rst",
            category="Partition camping on a Tesla C1060",
            labels=figure_labels,
        ),
        note=flow.path("figures", "{kind}-{machine}.json"),
    log:
        flow.path("logs", "figure-simulated-{kind}-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "figure-simulated-{kind}-{machine}.tsv")
    wildcard_constraints:
        kind="simulated|same_machine|float3",
    localrule: True
    conda:
        environment
    params:
        code=code_of(
            "figures",
            flow.chapter_folder("tesla_c1060") / "scripts/figure_simulated.py",
            *tesla_c1060.drawing,
        ),
        kind=lambda wildcards: wildcards.kind,
        note=figure_note,
    script:
        "scripts/figure_simulated.py"


rule atlas:
    input:
        recorded=lambda wildcards: [
            local(file)
            for made, file in tesla_c1060.recorded.items()
            if made == flow.path(f"figures-{wildcards.machine}.pdf")
        ],
    output:
        pdf=report(
            flow.path("figures-{machine}.pdf"),
            caption="atlas.rst",
            category="Partition camping on a Tesla C1060",
            labels={"figure": "Every figure of the document, drawn again"},
        ),
    log:
        flow.path("logs", "atlas-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "atlas-{machine}.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of(
            "figures",
            flow.chapter_folder("tesla_c1060") / "scripts/atlas.py",
            *tesla_c1060.drawing,
        ),
        asked=lambda wildcards: tesla_c1060.asked_for(f"figures-{wildcards.machine}.pdf"),
    script:
        "scripts/atlas.py"
