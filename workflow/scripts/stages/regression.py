"""Fails if a compared run is slower."""

from pathlib import Path

from gpushmoo.comparing.compare import regression
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    regression(groups=Path(snakemake.input.groups), out=Path(snakemake.output[0]))
