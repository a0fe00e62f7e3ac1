"""Fits the model of a GPU to the devices of the data set."""

from pathlib import Path

from gpushmoo.model.fit_stage import fit_devices
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    fit_devices(
        dataset=Path(snakemake.input.dataset),
        folders=snakemake.params.folders,
        code=[Path(file) for file in snakemake.input.code],
        fits=Path(snakemake.output.fits),
        table=Path(snakemake.output.table),
    )
