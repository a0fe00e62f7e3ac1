"""Rule counters: hardware counters of a designed sample of cells, and of the fastest launches.

In: what the model of the device explains. Out: the table of counters, without rows where none can
be read; and how busy each unit was, as JSON.
"""

from pathlib import Path

from gpushmoo.core.process import JobSignalledError, raises_signals
from gpushmoo.storage.joblog import job_log
from gpushmoo.studies.counters import count_sample

with job_log(snakemake.log[0], (JobSignalledError,)) as terminal, raises_signals():
    count_sample(
        snakemake.params.spec["device"],
        Path(snakemake.output[0]),
        lambda text: print(f"gpushmoo: counters: {text}", file=terminal, flush=True),
        Path(snakemake.params.cache),
        explained=[Path(p) for p in snakemake.input.explained],
    )
