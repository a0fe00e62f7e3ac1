"""Rule ceiling: what the device can load and store at most.

In: the data set. Out: ``summary/ceiling.json``.
"""

from pathlib import Path

from gpushmoo.analysis.ceiling import measure_ceiling
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    measure_ceiling(
        Path(snakemake.input.dataset), snakemake.params.kinds, Path(snakemake.output[0])
    )
