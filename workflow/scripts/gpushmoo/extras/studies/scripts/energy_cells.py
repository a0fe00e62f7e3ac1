"""Chooses the cells of which the energy is measured."""

from pathlib import Path

from gpushmoo.extras.studies.energy_table import write_energy_cells
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    write_energy_cells(
        dataset=Path(snakemake.input.dataset),
        best=Path(snakemake.input.best),
        left_out=snakemake.params.left_out,
        controls=snakemake.params.controls,
        out=Path(snakemake.output[0]),
    )
