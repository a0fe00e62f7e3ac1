"""Rule simulate_tables: the first document's tables as predictions."""

from pathlib import Path

from gpushmoo.core.paths import ROOT
from gpushmoo.storage.joblog import job_log
from tesla_c1060.stages import simulate_tables

with job_log(snakemake.log[0]):
    spec = snakemake.params.spec
    simulate_tables(
        ROOT / spec["file"],
        spec["levels"],
        spec["tables"]["sizes"],
        spec["tables"]["num_partition"],
        Path(snakemake.output[0]),
        snakemake.threads,
    )
