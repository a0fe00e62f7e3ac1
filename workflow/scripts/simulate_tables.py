"""Rule simulate_tables: the first document's tables as predictions."""

from pathlib import Path

from gpushmoo.job_params import ROOT
from gpushmoo.joblog import job_log
from gpushmoo.model.simulate import simulate_tables

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
