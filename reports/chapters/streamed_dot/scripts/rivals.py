"""Rule rivals: ways of one dot product on host and device, timed in rounds."""

from pathlib import Path

from gpushmoo.core.errors import DeviceError
from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.store import NotWrittenError
from streamed_dot.study_job import run_comparisons

with job_log(snakemake.log[0], expected=(DeviceError, NotWrittenError)) as terminal:
    run_comparisons(
        snakemake.params.spec, Path(snakemake.params.cache), Path(snakemake.output[0]), terminal
    )
