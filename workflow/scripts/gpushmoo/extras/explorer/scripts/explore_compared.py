"""Writes the page of all cells of two compared runs."""

from pathlib import Path

from gpushmoo.extras.explorer.explore import explore_compared
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    explore_compared(spec=snakemake.params.spec, out=Path(snakemake.output[0]))
