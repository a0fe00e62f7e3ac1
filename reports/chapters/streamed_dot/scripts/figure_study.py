"""Draws the figure of a study."""

from pathlib import Path

from gpushmoo.storage.joblog import job_log
from streamed_dot.figure_studies import draw_study

with job_log(snakemake.log[0]):
    draw_study(
        study=snakemake.params.study,
        table=Path(snakemake.input.table),
        svg=Path(snakemake.output.svg),
    )
