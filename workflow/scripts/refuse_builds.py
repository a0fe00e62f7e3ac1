"""Rule build: an error where a variant of a kernel cannot be measured.

In: the build files.
"""

from pathlib import Path

from gpushmoo.devices.building import MachineCodeError, refuse_failures
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0], expected=(MachineCodeError,)):
    refuse_failures([Path(file) for file in snakemake.input])
