"""Rule timeline: what the copies and kernels of single cells do when."""

from pathlib import Path

from gpushmoo.devices.base import DeviceError
from gpushmoo.joblog import job_log
from gpushmoo.store import NotWrittenError
from gpushmoo.study_job import run_timelines

with job_log(snakemake.log[0], expected=(DeviceError, NotWrittenError)) as terminal:
    run_timelines(
        snakemake.params.spec,
        Path(snakemake.params.cache),
        Path(snakemake.output[0]),
        terminal,
    )
