"""Rule energy: joules per gigabyte of a few cells.

In: the file of cells. Out: the table of energy; without rows where nothing counts it.
"""

from pathlib import Path

from gpushmoo.core.process import JobSignalledError, raises_signals
from gpushmoo.storage.joblog import job_log
from gpushmoo.studies.energy import energy_of_run

with job_log(snakemake.log[0], (JobSignalledError,)) as terminal, raises_signals():
    energy_of_run(
        snakemake.params.spec,
        Path(snakemake.input[0]),
        Path(snakemake.output[0]),
        lambda text: print(f"gpushmoo: energy: {text}", file=terminal, flush=True),
        Path(snakemake.params.cache),
    )
