"""Compiles the versions of a kernel for one element type."""

from pathlib import Path

from gpushmoo.core.build_job import BuildJob
from gpushmoo.devices.building import build_kernel
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]) as terminal:
    build_kernel(
        job=BuildJob.of_plain(snakemake.params.job),
        cache=snakemake.params.cache,
        out=Path(snakemake.output[0]),
        terminal=terminal,
        log_file=snakemake.log[0],
        threads=snakemake.threads,
    )
