"""Rule best: the sets of best cells.

In: the data set and ``summary/ceiling.json``. Out: ``summary/best.parquet``.
"""

from pathlib import Path

from gpushmoo.analysis.best import write_best
from gpushmoo.analysis.edges import Limits
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    write_best(
        Path(snakemake.input.dataset),
        Path(snakemake.input.ceiling),
        snakemake.params.host_fed,
        Limits(snakemake.params.most, snakemake.params.threads),
        Path(snakemake.output[0]),
    )
