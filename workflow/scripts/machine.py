"""Rule machine: a device's figures, from micro-benchmarks.

In: the data set. Out: ``model/machine.json``.
"""

from pathlib import Path

from gpushmoo.analysis.machine import measure_machine
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    measure_machine(Path(snakemake.input.dataset), Path(snakemake.output[0]))
