# Measures the shards, one job each. Snakemake does not compare a parameter whose function takes
# `output`: a shard's place among all of them is for progress lines and must not measure it again.
# (A plan file as ancient() input would: https://github.com/snakemake/snakemake/issues/4166.)


# Compiles a kernel and dtype for the devices that measure it, and checks the machine code. A variant
# that fails stands in the file with its message.
rule build_kernel:
    output:
        flow.path("builds", "{sweep}", "{dtype}.json"),
    log:
        flow.path("logs", "build", "{sweep}-{dtype}.log"),
    benchmark:
        flow.path("benchmarks", "build", "{sweep}-{dtype}.tsv")
    # Measuring waits for them.
    priority: 2
    conda:
        device_environment
    threads: flow.build_threads
    # On a cluster the device that says what is to be compiled is where a GPU is asked for.
    resources:
        gpu=lambda wildcards: 0 if flow.config.settings.cuda_arch or not inside.on_cluster else 1,
    params:
        code=code_of("devices", scripts / "build_kernel.py"),
        job=lambda wildcards: flow.build_job(wildcards).plain,
        cache=flow.cache,
        shared=flow.shared_code,
    script:
        "../scripts/stages/build_kernel.py"


# Compiles all kernels; fails where a run would go on with what is left.
rule build:
    input:
        builds=flow.build_files,
    log:
        flow.path("logs", "build.log"),
    benchmark:
        flow.path("benchmarks", "build.tsv")
    localrule: True
    conda:
        environment
    params:
        code=code_of("devices", scripts / "build.py"),
    script:
        "../scripts/stages/build.py"


# Has no benchmark file: Snakemake would look at its processes' memory twice a second, which disturbs
# what is measured.
rule measure:
    input:
        build=flow.build_file,
    output:
        flow.path("cells", "{sweep}", "{dtype}", "{shard}.parquet"),
    log:
        flow.path("logs", "measure", "{sweep}-{dtype}-{shard}.log"),
    # All of the first repeat before any of the others, so that as much time as possible lies between:
    # what they differ by is what another run would differ by.
    priority: 1
    conda:
        device_environment
    threads: flow.measure_threads
    resources:
        gpu=1,
    params:
        code=code_of("measuring"),
        job=lambda wildcards: flow.job(wildcards).plain,
        request=flow.measure_request,
        # Not compared either.
        python=lambda wildcards, output: "python" if inside.in_environments else sys.executable,
        shared=flow.shared_code,
    script:
        "../scripts/measure.sh"


# The same once more, in another process and some time later: the cells that were ok, with as many
# launches a sample.
use rule measure as repeat with:
    input:
        build=flow.build_file,
        first=flow.first_repeat,
    output:
        flow.path("cells", "{sweep}", "{dtype}", "{shard}.repeat-{repeat}.parquet"),
    log:
        flow.path("logs", "measure", "{sweep}-{dtype}-{shard}.repeat-{repeat}.log"),
    priority: 0
