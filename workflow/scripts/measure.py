"""Rule measure: measures one shard.

In: of a later repeat the first one's shard, the build file. Out: the shard.
"""

from pathlib import Path

from gpushmoo.core.errors import DeviceError
from gpushmoo.measuring.earlier import Earlier
from gpushmoo.measuring.job import ShardTask, run_shard
from gpushmoo.measuring.orphans import OrphanError
from gpushmoo.measuring.signalled import JobSignalledError, raises_signals
from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.store import NotWrittenError

expected = (DeviceError, NotWrittenError, OrphanError, JobSignalledError)
with job_log(snakemake.log[0], expected) as terminal, raises_signals():
    params, out = snakemake.params, Path(snakemake.output[0])
    earlier = Earlier(out, params.spec, f"{params.code} {params.backend} {params.library}")
    earlier.read(params.again)
    task = ShardTask(
        params.spec,
        params.place,
        Path(params.cache),
        Path(first) if (first := snakemake.input.get("first")) else None,
        Path(build) if (build := snakemake.input.get("build")) else None,
        snakemake.log[0],
        earlier,
    )
    run_shard(task, out, terminal, Path(params.plan))
