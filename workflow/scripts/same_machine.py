"""Rule same_machine: a simulated device against the measured one of its name."""

from pathlib import Path

from gpushmoo.job_params import ROOT
from gpushmoo.joblog import job_log
from gpushmoo.model.same_machine import compare_with_measured

with job_log(snakemake.log[0]):
    spec = snakemake.params.spec
    compare_with_measured(
        ROOT / spec["file"],
        spec["levels"],
        Path(snakemake.input[0]),
        Path(snakemake.output[0]),
        snakemake.threads,
    )
