"""Rule simulate: a simulated device over its sizes and numbers of blocks.

Out: simulated bandwidths as Parquet.
"""

from pathlib import Path

from gpushmoo.core.paths import ROOT
from gpushmoo.simulation.stages import simulate_device
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    spec = snakemake.params.spec
    simulate_device(
        ROOT / spec["file"],
        spec["levels"],
        spec["sizes"],
        spec["num_partition"],
        Path(snakemake.output[0]),
        snakemake.threads,
    )
