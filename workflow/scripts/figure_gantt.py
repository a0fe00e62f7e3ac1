"""Rule figure_gantt: the first half-warps of a simulated device in time."""

from pathlib import Path

from gpushmoo.figures.gantt import gantt
from gpushmoo.job_params import ROOT
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0]):
    gantt(ROOT / snakemake.params.spec["file"], Path(snakemake.output.svg))
