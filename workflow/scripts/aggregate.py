"""Rule aggregate: shards into one dataset.

In: the shards. Out: the folder of the data set.
"""

from pathlib import Path

from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.core.run_plan import RunPlan
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    shards = [Path(p) for p in snakemake.input.shards]
    planned = snakemake.params.plan
    plan = None if planned is None else RunPlan.from_plain(planned)
    aggregate(shards, Path(snakemake.output[0]), snakemake.params.one_model, plan=plan)
