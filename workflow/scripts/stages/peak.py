"""Finds how fast the device can load, store and compute, in the measured cells."""

from pathlib import Path

from gpushmoo.analysis.peak import measure_peak
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    measure_peak(
        dataset=Path(snakemake.input.dataset),
        kinds=snakemake.params.kinds,
        out=Path(snakemake.output[0]),
    )
