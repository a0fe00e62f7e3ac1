"""Rule errors: how far every way of computing a dot product is from the exact one."""

from pathlib import Path

from gpushmoo.core.errors import DeviceError
from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.store import NotWrittenError
from streamed_dot.study_job import run_errors

with job_log(snakemake.log[0], expected=(DeviceError, NotWrittenError)) as terminal:
    run_errors(
        snakemake.params.spec, Path(snakemake.params.cache), Path(snakemake.output[0]), terminal
    )
