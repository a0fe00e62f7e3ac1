# Measures the shards, one job each. Snakemake does not compare a parameter whose function takes
# `output`: a shard's place among all of them is for progress lines and must not measure it again.
# (A plan file as ancient() input would: https://github.com/snakemake/snakemake/issues/4166.)


# Tells where the compiler left out, narrowed or hoisted what is to be timed. A measuring job on a CUDA
# device makes the same check itself, before it measures, so that it need not wait for this job.
rule check_machine_code:
    output:
        flow.path("machine_code", "{sweep}", "{dtype}.json"),
    log:
        flow.path("logs", "machine_code", "{sweep}-{dtype}.log"),
    conda:
        "../../environment.yml"
    # On a cluster the device that tells its architecture is where a GPU is asked for.
    resources:
        gpu=lambda wildcards: 0 if flow.config.cuda_arch or workflow.local_exec else 1,
    params:
        spec=flow.machine_code_params,
        cache=flow.cache,
        code=flow.code("machine_code"),
    script:
        "../scripts/machine_code.py"


rule measure:
    input:
        shards_anew(flow, workflow),
    output:
        flow.path("cells", "{sweep}", "{dtype}", "{shard}.parquet"),
    log:
        flow.path("logs", "measure", "{sweep}-{dtype}-{shard}.log"),
    # All of the first repeat before any of the others, so that as much time as possible lies between:
    # what they differ by is what another run would differ by.
    priority: 1
    conda:
        "../../environment.yml"
    threads: flow.measure_threads
    resources:
        gpu=1,
    params:
        spec=flow.measure_params,
        place=flow.shard_place,
        cache=flow.cache,
        plan=flow.plan_file,
        code=flow.code("measure_job"),
        library=flow.library_code,
    script:
        "../scripts/measure.py"


# The same once more, in another process and some time later: the cells that were ok, with as many
# launches a sample.
use rule measure as repeat with:
    input:
        shards_anew(flow, workflow),
        first=flow.first_repeat,
    output:
        flow.path("cells", "{sweep}", "{dtype}", "{shard}.repeat-{repeat}.parquet"),
    log:
        flow.path("logs", "measure", "{sweep}-{dtype}-{shard}.repeat-{repeat}.log"),
    priority: 0
