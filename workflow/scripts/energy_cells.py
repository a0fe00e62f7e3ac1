"""Rule energy_cells: the cells whose energy is measured.

In: the data set and ``summary/best.parquet``. Out: ``summary/energy_cells.json``.
"""

from pathlib import Path

from gpushmoo.analysis.energy_cells import write_energy_cells
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    write_energy_cells(
        Path(snakemake.input.dataset),
        Path(snakemake.input.best),
        snakemake.params.left_out,
        snakemake.params.controls,
        Path(snakemake.output[0]),
    )
