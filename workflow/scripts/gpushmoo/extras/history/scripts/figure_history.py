"""Draws the bests of a run beside those of earlier runs."""

from pathlib import Path

from gpushmoo.extras.history.figure import history_figure
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    history_figure(
        tables=[Path(table) for table in snakemake.input.tables],
        svg=Path(snakemake.output.svg),
    )
