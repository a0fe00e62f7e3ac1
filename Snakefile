from snakemake.utils import min_version

min_version("9.13")


include: "workflow/rules/readable.smk"


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"


# A recorded data set is never measured again, wherever it lies.
if flow.config.dataset is None:

    include: "workflow/rules/measure.smk"
    include: "workflow/rules/studies.smk"


include: "workflow/rules/analyse.smk"
include: "workflow/rules/simulate.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    machine_code,
    cells,


rule all:
    default_target: True
    input:
        flow.path("report.pdf"),
        flow.path("summary", "verdict.txt"),
        flow.atlas_files,
        flow.machine_code_files if flow.measures_on_cuda else [],


# Fails where a run would go on with what is left.
rule machine_code:
    input:
        flow.machine_code_files,
    log:
        flow.path("logs", "machine_code.log"),
    conda:
        "environment.yml"
    script:
        "workflow/scripts/refuse_machine_code.py"


rule cells:
    input:
        flow.shard_files,
        [flow.study_file(study) for study in flow.studies],
        flow.machine_code_files if flow.measures_on_cuda else [],


remake_damaged(workflow)
