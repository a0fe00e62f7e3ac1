from snakemake.utils import min_version

min_version("9.13")


include: "workflow/rules/readable.smk"


configfile: str(DEFAULTS)


include: "workflow/rules/common.smk"


# A recorded data set is never measured again, wherever it lies.
if flow.config.dataset is None:

    include: "workflow/rules/measure.smk"
    include: "workflow/rules/studies.smk"


include: "workflow/rules/analyse.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/compare.smk"


for chapter_rules in flow.chapter_rules:

    include: chapter_rules


rule all:
    input:
        flow.path("report.pdf"),
        flow.path("explorer.html"),
        flow.path("summary", "verdict.txt"),
        flow.chapter_products,
        flow.study_files,
    localrule: True


rule cells:
    input:
        flow.shard_files,
        flow.chapter_measured,
        flow.study_files,
    localrule: True


rerun_changed_scripts(workflow)
remake_damaged(flow, workflow)
check_at_start(flow, workflow)
