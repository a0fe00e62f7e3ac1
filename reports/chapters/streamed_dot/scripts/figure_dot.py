"""Draws a plot of the document with the measured dot products in it."""

from pathlib import Path

from gpushmoo.storage.joblog import job_log
from streamed_dot.figure_dot import draw_plot

with job_log(snakemake.log[0]):
    draw_plot(
        plot=snakemake.params.plot,
        dataset=Path(snakemake.input.dataset),
        svg=Path(snakemake.output.svg),
    )
