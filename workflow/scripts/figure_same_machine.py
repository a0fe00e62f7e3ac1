"""Rule figure_same_machine: a simulated device against the measured one of its name.

In: the output of `same_machine.py`. Out: the figure, and its title and caption beside it.
"""

from pathlib import Path

from gpushmoo.core.schema import SAME_MACHINE_SCHEMA
from gpushmoo.figures.same_machine import same_machine
from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.store import read_table

with job_log(snakemake.log[0]):
    table = read_table(Path(snakemake.input[0]), SAME_MACHINE_SCHEMA)
    same_machine(table.to_pandas(), Path(snakemake.output.svg))
