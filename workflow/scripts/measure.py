"""Rule measure: measures one shard."""

from pathlib import Path

from gpushmoo.devices.base import DeviceError
from gpushmoo.joblog import job_log
from gpushmoo.measure_job import run_shard
from gpushmoo.orphans import OrphanError
from gpushmoo.signalled import JobSignalledError, raises_signals
from gpushmoo.store import NotWrittenError

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
    )
