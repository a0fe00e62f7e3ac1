"""Compares runs: tables, a picture and a page."""

from pathlib import Path

from gpushmoo.report.build import compare_runs
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    compare_runs(
        spec=snakemake.params.spec,
        tables=[Path(table) for table in snakemake.output.tables],
    )
