"""Writes the page of all cells."""

from pathlib import Path

from gpushmoo.extras.explorer.explore import write_run_page
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    write_run_page(
        dataset=Path(snakemake.input.dataset),
        device=[Path(file) for file in snakemake.input.device],
        history=[Path(file) for file in snakemake.input.history],
        facts=Path(snakemake.input.facts),
        run=snakemake.params.run,
        out=Path(snakemake.output[0]),
    )
