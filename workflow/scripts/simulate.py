"""Rule simulate: a simulated device over its sizes and numbers of blocks."""

from pathlib import Path

from gpushmoo.job_params import ROOT
from gpushmoo.joblog import job_log
from gpushmoo.model.simulate import simulate_device

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
