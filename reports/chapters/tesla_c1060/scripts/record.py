"""Replaces the recorded files by those that this run has made."""

from gpushmoo.storage.joblog import job_log
from tesla_c1060.chapter import replace_record

with job_log(snakemake.log[0]):
    replace_record(constants=snakemake.params.constants)
