"""Joins the shards of a run into its data set."""

from pathlib import Path

from gpushmoo.analysis.aggregate import aggregate_run
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    aggregate_run(
        shards=[Path(shard) for shard in snakemake.input.shards],
        out=Path(snakemake.output[0]),
        one_model=snakemake.params.one_model,
        plan=snakemake.params.plan,
    )
