"""Measures the energy of chosen cells."""

from pathlib import Path

from gpushmoo.core.study_job import StudyJob
from gpushmoo.extras.studies.energy import energy_of_run
from gpushmoo.storage.joblog import job_log, speaker

with job_log(snakemake.log[0]) as terminal:
    energy_of_run(
        job=StudyJob.of_plain(snakemake.params.job),
        cells=Path(snakemake.input.cells),
        out=Path(snakemake.output[0]),
        say=speaker(terminal, "energy"),
        cache=snakemake.params.cache,
    )
