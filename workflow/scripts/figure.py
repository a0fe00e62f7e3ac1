"""Rule figure: one figure of a kernel's view of its cells."""

from pathlib import Path

from gpushmoo.figures.stage import draw_figure
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]) as terminal:
    files = {name: Path(file) for name, file in snakemake.input.items()}
    draw_figure(snakemake.params.spec, files, Path(snakemake.output.svg), terminal)
