# Simulated devices, what the first document asks of its own, and figures of both. What the record
# holds is copied, not made.
tesla_c1060 = flow.plan_of("tesla_c1060")


wildcard_constraints:
    machine="[A-Za-z0-9][A-Za-z0-9._-]*",


# Makes anew what the repository holds of what no measurement enters.
use rule stage as record with:
    input:
        list(tesla_c1060.constants),
    params:
        code=code_of("planning", flow.chapter_folder("tesla_c1060")),
        call="tesla_c1060.chapter:replace_record",
        constants=tesla_c1060.constants,


use rule stage as simulate with:
    output:
        flow.path("simulated", "{machine}-{kind}.parquet"),
    wildcard_constraints:
        kind="blocks|tables|search|profile|tiles",
    # The search is minutes of one core.
    threads: lambda wildcards: 16 if wildcards.kind == "search" else 2
    params:
        code=code_of("storage", *tesla_c1060.simulating),
        call="tesla_c1060.stages:make_table",
        asked=lambda wildcards: tesla_c1060.asked_for(
            f"simulated/{wildcards.machine}-{wildcards.kind}.parquet"
        ),


use rule stage as same_machine with:
    input:
        dataset=flow.dataset,
    output:
        flow.path("simulated", "{machine}-measured.parquet"),
    threads: 2
    params:
        code=code_of("storage", *tesla_c1060.simulating),
        call="tesla_c1060.simulation.compare_measured:compare_with_measured",
        asked=lambda wildcards: tesla_c1060.asked_for(
            f"simulated/{wildcards.machine}-measured.parquet"
        ),


use rule stage as check_published with:
    output:
        flow.path("simulated", "{machine}-checks.json"),
    params:
        code=code_of("storage", *tesla_c1060.drawing),
        call="tesla_c1060.checks:check_published",
        asked=lambda wildcards: tesla_c1060.asked_for(f"simulated/{wildcards.machine}-checks.json"),


use rule stage as figure_simulated with:
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
    wildcard_constraints:
        kind="simulated|same_machine|float3",
    params:
        code=code_of("figures", *tesla_c1060.drawing),
        call="tesla_c1060.figures.simulated:draw",
        kind=lambda wildcards: wildcards.kind,
        note=figure_note,


use rule stage as atlas with:
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
    params:
        code=code_of("figures", *tesla_c1060.drawing),
        call="tesla_c1060.atlas:make_atlas",
        asked=lambda wildcards: tesla_c1060.asked_for(f"figures-{wildcards.machine}.pdf"),
