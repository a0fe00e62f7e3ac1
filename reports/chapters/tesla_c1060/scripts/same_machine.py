"""Simulates the measured cells of a device."""

from pathlib import Path

from gpushmoo.storage.joblog import job_log
from tesla_c1060.simulation.compare_measured import compare_with_measured

with job_log(snakemake.log[0]):
    compare_with_measured(
        asked=snakemake.params.asked,
        dataset=Path(snakemake.input.dataset),
        out=Path(snakemake.output[0]),
        threads=snakemake.threads,
    )
