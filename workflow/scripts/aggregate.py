"""Rule aggregate: shards into one dataset."""

from pathlib import Path

from gpushmoo.analysis.aggregate import AggregateError, aggregate
from gpushmoo.joblog import job_log
from gpushmoo.quarantine import set_aside
from gpushmoo.run_plan import RunPlan

with job_log(snakemake.log[0], expected=(AggregateError,)):
    out = Path(snakemake.output[0])
    try:
        shards = [Path(p) for p in snakemake.input.shards]
        planned = snakemake.params.plan
        plan = None if planned is None else RunPlan.from_plain(planned)
        aggregate(shards, out, snakemake.params.one_model, plan=plan)
    except AggregateError as err:
        moved = set_aside(err.files, out.parent)
        if not moved:
            raise
        names = ", ".join(f"'{path}'" for path in moved)
        raise AggregateError(
            f"{err} Set aside as {names}; start the run again to measure what is missing."
        ) from None
