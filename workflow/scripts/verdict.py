"""Rule verdict: says which cells ended in a fault; an error for a failed sweep or a strict run.

In: the data set. Out: ``summary/verdict.txt``.
"""

from pathlib import Path

from gpushmoo.analysis.statuses import FailedSweepError, StrictError, judge_dataset
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0], expected=(StrictError, FailedSweepError)) as terminal:
    judge_dataset(
        Path(snakemake.input.dataset),
        Path(snakemake.output[0]),
        snakemake.params.strict,
        snakemake.params.sweeps,
        terminal,
    )
