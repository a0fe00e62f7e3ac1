"""Rule plan: writes the list of shards."""

from pathlib import Path

from gpushmoo.joblog import job_log
from gpushmoo.plan import write_plan

with job_log(snakemake.log[0]):
    write_plan(snakemake.params.shards, Path(snakemake.output[0]))
