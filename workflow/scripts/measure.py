"""Rule measure: measures one shard.

In: of a later repeat the first one's shard. Out: the shard.
"""

from pathlib import Path

from gpushmoo.core.errors import DeviceError
from gpushmoo.measuring.job import run_shard
from gpushmoo.measuring.orphans import OrphanError
from gpushmoo.measuring.signalled import JobSignalledError, raises_signals
from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.store import NotWrittenError

expected = (DeviceError, NotWrittenError, OrphanError, JobSignalledError)
with job_log(snakemake.log[0], expected) as terminal, raises_signals():
    run_shard(
        snakemake.params.spec,
        snakemake.params.place,
        Path(snakemake.params.cache),
        Path(snakemake.output[0]),
        terminal,
        Path(first) if (first := snakemake.input.get("first")) else None,
        snakemake.log[0],
        Path(snakemake.params.plan),
        Path(build) if (build := snakemake.input.get("build")) else None,
    )
