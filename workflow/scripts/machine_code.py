"""Rule check_machine_code: what the compiler made of one kernel and dtype."""

from pathlib import Path

from gpushmoo.devices.base import DeviceError
from gpushmoo.joblog import job_log
from gpushmoo.machine_code import check_machine_code

with job_log(snakemake.log[0], expected=(DeviceError,)) as terminal:
    check_machine_code(
        snakemake.params.spec, Path(snakemake.params.cache), Path(snakemake.output[0]), terminal
    )
