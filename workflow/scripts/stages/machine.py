"""Finds facts about the machine in the cells of the kernel `chase`."""

from pathlib import Path

from gpushmoo.model.machine import measure_machine
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    measure_machine(dataset=Path(snakemake.input.dataset), out=Path(snakemake.output[0]))
