"""Rule build_kernel: compiles one kernel and dtype.

Out: the build file.
"""

from pathlib import Path

from gpushmoo.core.errors import DeviceError
from gpushmoo.devices.building import build_kernel
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0], expected=(DeviceError,)) as terminal:
    build_kernel(
        snakemake.params.spec,
        Path(snakemake.params.cache),
        Path(snakemake.output[0]),
        terminal,
        snakemake.log[0],
        snakemake.threads,
    )
