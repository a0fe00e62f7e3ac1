"""Draws a figure of simulated devices, or copies the recorded one."""

from pathlib import Path

from gpushmoo.storage.joblog import job_log
from tesla_c1060.figures.simulated import draw

with job_log(snakemake.log[0]):
    draw(
        kind=snakemake.params.kind,
        sources=[Path(source) for source in snakemake.input.sources],
        svg=Path(snakemake.output.svg),
    )
