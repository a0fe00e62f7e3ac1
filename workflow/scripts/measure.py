"""Rule measure: measures one shard."""

from pathlib import Path

from gpushmoo.devices.base import DeviceError
from gpushmoo.joblog import job_log
from gpushmoo.measure_job import run_shard
from gpushmoo.orphans import OrphanError
from gpushmoo.store import NotWrittenError

with job_log(snakemake.log[0], expected=(DeviceError, NotWrittenError, OrphanError)) as terminal:
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
