"""Rule ceiling: what the device can load and store at most."""

from pathlib import Path

from gpushmoo.analysis.ceiling import ceiling_rows, write_ceiling
from gpushmoo.dataset import read_cells
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0]):
    cells = read_cells(Path(snakemake.input.dataset))
    write_ceiling(ceiling_rows(cells, snakemake.params.kinds), Path(snakemake.output[0]))
