"""Rule ceiling: what the device can load and store at most."""

from pathlib import Path

from gpushmoo.analysis.ceiling import COLUMNS, ceiling_rows, write_ceiling
from gpushmoo.dataset import read_cells
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0]):
    kinds = snakemake.params.kinds
    where = {"kernel": list(kinds), "status": "ok"}
    cells = read_cells(Path(snakemake.input.dataset), where, COLUMNS)
    write_ceiling(ceiling_rows(cells, kinds), Path(snakemake.output[0]))
