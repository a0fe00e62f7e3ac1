"""Computes the published quantities again."""

from pathlib import Path

from gpushmoo.storage.joblog import job_log
from tesla_c1060.checks import check_published

with job_log(snakemake.log[0]):
    check_published(asked=snakemake.params.asked, out=Path(snakemake.output[0]))
