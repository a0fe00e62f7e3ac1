"""Draws a figure of measured cells."""

from pathlib import Path

from gpushmoo.core.figure_job import FigureJob
from gpushmoo.figures.draw_stage import draw_figure
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]) as terminal:
    draw_figure(
        job=FigureJob.of_plain(snakemake.params.job),
        files={name: Path(file) for name, file in snakemake.input.items()},
        svg=Path(snakemake.output.svg),
        terminal=terminal,
    )
