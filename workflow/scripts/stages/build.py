"""Fails if a version of a kernel cannot be measured."""

from pathlib import Path

from gpushmoo.devices.building import refuse_failures
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    refuse_failures(builds=[Path(build) for build in snakemake.input.builds])
