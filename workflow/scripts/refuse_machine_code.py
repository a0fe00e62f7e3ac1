"""Rule machine_code: an error where machine code is not as it must be."""

from pathlib import Path

from gpushmoo.joblog import job_log
from gpushmoo.machine_code import MachineCodeError, refuse_failures

with job_log(snakemake.log[0], expected=(MachineCodeError,)):
    refuse_failures([Path(file) for file in snakemake.input])
