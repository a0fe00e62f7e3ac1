"""Rule same_machine: a simulated device against the measured one of its name.

In: the data set. Out: simulated beside measured bandwidths as Parquet.
"""

from pathlib import Path

from gpushmoo.core.paths import ROOT
from gpushmoo.simulation.compare_measured import compare_with_measured
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    spec = snakemake.params.spec
    compare_with_measured(
        ROOT / spec["file"],
        spec["levels"],
        Path(snakemake.input[0]),
        Path(snakemake.output[0]),
        snakemake.threads,
    )
