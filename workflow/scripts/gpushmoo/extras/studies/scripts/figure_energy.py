"""Draws bandwidth and energy of launches."""

from pathlib import Path

from gpushmoo.extras.studies.figure import energy_figure
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    energy_figure(energy=Path(snakemake.input.energy[0]), svg=Path(snakemake.output.svg))
