"""Rule errors: how far every way of computing a dot product is from the exact one."""

from pathlib import Path

from gpushmoo.devices.base import DeviceError
from gpushmoo.joblog import job_log
from gpushmoo.store import NotWrittenError
from gpushmoo.study_job import run_errors

with job_log(snakemake.log[0], expected=(DeviceError, NotWrittenError)) as terminal:
    run_errors(
        snakemake.params.spec,
        Path(snakemake.params.cache),
        Path(snakemake.output[0]),
        terminal,
    )
