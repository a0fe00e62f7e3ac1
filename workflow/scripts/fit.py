"""Rule fit: the closed model, fitted to the persistent-block kernels."""

from pathlib import Path

from gpushmoo.dataset import read_medians
from gpushmoo.joblog import job_log
from gpushmoo.model.series import fit_dataset

with job_log(snakemake.log[0]):
    fit_dataset(
        read_medians(Path(snakemake.input.dataset), {"kernel": snakemake.params.kernels}),
        snakemake.params.kernels,
        snakemake.params.holdout,
        snakemake.params.seed,
        Path(snakemake.output.params),
        Path(snakemake.output.predictions),
    )
