# Measures the shards, one job each. The plan is only looked at for progress lines.


rule plan:
    output:
        flow.path("plan.json"),
    log:
        flow.path("logs", "plan.log"),
    localrule: True
    conda:
        "../../environment.yml"
    params:
        shards=[s.path for s in flow.shards],
    script:
        "../scripts/plan.py"


rule measure:
    input:
        plan=ancient(flow.path("plan.json")),
    output:
        flow.path("cells", "{kernel}", "{dtype}", "{shard}.parquet"),
    log:
        flow.path("logs", "measure", "{kernel}-{dtype}-{shard}.log"),
    conda:
        "../../environment.yml"
    threads: flow.measure_threads
    resources:
        gpu=1,
    params:
        spec=flow.measure_params,
        code=flow.code("measure_job"),
    script:
        "../scripts/measure.py"
