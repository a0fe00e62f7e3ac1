"""Reads the device's counters for a few launches."""

from pathlib import Path

from gpushmoo.core.study_job import StudyJob
from gpushmoo.extras.studies.counters import count_of_run
from gpushmoo.storage.joblog import job_log, speaker

with job_log(snakemake.log[0]) as terminal:
    count_of_run(
        job=StudyJob.of_plain(snakemake.params.job),
        out=Path(snakemake.output[0]),
        say=speaker(terminal, "counters"),
        cache=snakemake.params.cache,
        explained=[Path(file) for file in snakemake.input.explained],
    )
