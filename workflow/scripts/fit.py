"""Rule fit: the closed model, fitted to the persistent-block kernels.

In: the data set. Out: ``model/params.json`` and ``model/predictions.parquet``.
"""

from pathlib import Path

from gpushmoo.analysis.models.series import fit_kernels
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    fit_kernels(
        Path(snakemake.input.dataset),
        snakemake.params.kernels,
        snakemake.params.holdout,
        snakemake.params.seed,
        Path(snakemake.output.params),
        Path(snakemake.output.predictions),
    )
