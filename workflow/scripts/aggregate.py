"""Rule aggregate: shards into one dataset."""

from pathlib import Path

from gpushmoo.analysis.aggregate import AggregateError, aggregate
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0], expected=(AggregateError,)):
    aggregate([Path(p) for p in snakemake.input.shards], Path(snakemake.output[0]))
