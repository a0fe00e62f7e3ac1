"""Rule figure_simulated: bandwidth of a simulated device over its number of blocks."""

from pathlib import Path

from gpushmoo.core.schema import SIMULATION_SCHEMA
from gpushmoo.figures.simulated import simulated
from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.store import read_table

with job_log(snakemake.log[0]):
    table = read_table(Path(snakemake.input[0]), SIMULATION_SCHEMA)
    simulated(table.to_pandas(), Path(snakemake.output.svg))
