# Simulated devices, what the first document asks of its own, and figures of both. What the record
# holds is copied, not made.
tesla_c1060 = flow.plan_of("tesla_c1060")


wildcard_constraints:
    machine="[A-Za-z0-9][A-Za-z0-9._-]*",


# What all of them have in common; each names the function that it calls.
rule c1060:
    log:
        flow.path("logs", "c1060.log"),
    localrule: True
    conda:
        "../../../environment.yml"
    script:
        "../../../workflow/scripts/stage.py"


# Makes anew what the repository holds of what no measurement enters.
use rule c1060 as record with:
    input:
        list(tesla_c1060.constants),
    log:
        flow.path("logs", "record.log"),
    localrule: True
    params:
        call="tesla_c1060.chapter:replace_record",
        constants=tesla_c1060.constants,


use rule c1060 as simulate with:
    output:
        flow.path("simulated", "{machine}-{kind}.parquet"),
    log:
        flow.path("logs", "simulate-{machine}-{kind}.log"),
    benchmark:
        flow.path("benchmarks", "simulate-{machine}-{kind}.tsv")
    wildcard_constraints:
        kind="blocks|tables|questions|profile|tiles",
    localrule: True
    threads: 2
    params:
        call="tesla_c1060.stages:make_table",
        asked=lambda wildcards: tesla_c1060.asked_for(
            f"simulated/{wildcards.machine}-{wildcards.kind}.parquet"
        ),


use rule c1060 as same_machine with:
    input:
        dataset=flow.dataset,
    output:
        flow.path("simulated", "{machine}-measured.parquet"),
    log:
        flow.path("logs", "same-machine-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "same-machine-{machine}.tsv")
    localrule: True
    threads: 2
    params:
        call="tesla_c1060.simulation.compare_measured:compare_with_measured",
        asked=lambda wildcards: tesla_c1060.asked_for(
            f"simulated/{wildcards.machine}-measured.parquet"
        ),


use rule c1060 as check_published with:
    output:
        flow.path("simulated", "{machine}-checks.json"),
    log:
        flow.path("logs", "check-published-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "check-published-{machine}.tsv")
    localrule: True
    params:
        call="tesla_c1060.checks:check_published",
        asked=lambda wildcards: tesla_c1060.asked_for(f"simulated/{wildcards.machine}-checks.json"),


use rule c1060 as figure_simulated with:
    input:
        sources=lambda wildcards: [
            local(file) if file in tesla_c1060.recorded.values() else file
            for file in tesla_c1060.drawn_from(wildcards)
        ],
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
    benchmark:
        flow.path("benchmarks", "figure-{kind}-{machine}.tsv")
    wildcard_constraints:
        kind="simulated|same_machine|questions|float3",
    localrule: True
    params:
        call="tesla_c1060.figures.simulated:draw",
        kind=lambda wildcards: wildcards.kind,
        note=figure_note,


use rule c1060 as atlas with:
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
            category="The first document beside ours",
            labels={"figure": "Every figure of the document, drawn again"},
        ),
    log:
        flow.path("logs", "atlas-{machine}.log"),
    benchmark:
        flow.path("benchmarks", "atlas-{machine}.tsv")
    localrule: True
    params:
        call="tesla_c1060.atlas:make_atlas",
        asked=lambda wildcards: tesla_c1060.asked_for(f"figures-{wildcards.machine}.pdf"),
