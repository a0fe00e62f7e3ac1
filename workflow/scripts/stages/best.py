"""Finds the best cells of each group and those that are tied with them."""

from pathlib import Path

from gpushmoo.analysis.best import write_best
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    write_best(
        dataset=Path(snakemake.input.dataset),
        peak=Path(snakemake.input.peak),
        host_fed=snakemake.params.host_fed,
        limits=snakemake.params.limits,
        out=Path(snakemake.output[0]),
    )
