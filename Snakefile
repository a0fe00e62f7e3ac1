import gc

from snakemake.utils import min_version

min_version("9.13")
# Else Python looks through all that Snakemake imported again and again: a tenth of a dry run.
gc.freeze()


include: "workflow/rules/readable.smk"


configfile: str(DEFAULTS)


include: "workflow/rules/common.smk"


# A recorded data set is never measured again, wherever it lies.
if flow.config.dataset is None:

    include: "workflow/rules/measure.smk"


include: "workflow/rules/report.smk"
include: "workflow/rules/compare.smk"


for rules in extra_rules():

    include: rules


for chapter in flow.config.chapters.values():
    if chapter.folder.rules:

        include: chapter.folder.rules


rule all:
    input:
        flow.path("report.pdf"),
        flow.extra_products,
        flow.path("summary", "verdict.txt"),
        flow.chapter_products,
        flow.study_files,
    localrule: True


rule cells:
    input:
        flow.shard_files,
        [file for c in flow.config.chapters.values() for file in c.plan.measured],
        flow.study_files,
    localrule: True


inside.remake(remaking.faulty)


# A workflow that imports the rules calls it in its own `onstart:`, as gpushmoo.onstart().
onstart:
    start_run(flow, inside)
