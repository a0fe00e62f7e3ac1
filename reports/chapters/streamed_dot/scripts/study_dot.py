"""Measures a study of the dot product: a timeline, errors or rivals."""

from pathlib import Path

from gpushmoo.storage.joblog import job_log
from streamed_dot.study_job import run_job

with job_log(snakemake.log[0]) as terminal:
    run_job(
        study=snakemake.params.study,
        spec=snakemake.params.spec,
        cache=snakemake.params.cache,
        out=Path(snakemake.output[0]),
        terminal=terminal,
    )
