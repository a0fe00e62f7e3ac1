"""Rule timeline: what the copies and kernels of single cells do when."""

from pathlib import Path

from gpushmoo.core.errors import DeviceError
from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.store import NotWrittenError
from streamed_dot.study_job import run_timelines

with job_log(snakemake.log[0], expected=(DeviceError, NotWrittenError)) as terminal:
    run_timelines(
        snakemake.params.spec, Path(snakemake.params.cache), Path(snakemake.output[0]), terminal
    )
