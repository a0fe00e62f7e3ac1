"""Rule figure_study: draws a time line, or errors."""

from pathlib import Path

from gpushmoo.figures.errors import errors
from gpushmoo.figures.timeline import timeline
from gpushmoo.joblog import job_log
from gpushmoo.numerics import ERRORS_SCHEMA
from gpushmoo.store import read_table
from gpushmoo.timeline import read_timeline

with job_log(snakemake.log[0]):
    measured, svg = Path(snakemake.input[0]), Path(snakemake.output.svg)
    if snakemake.wildcards.study == "timeline":
        timeline(read_timeline(measured), svg)
    else:
        errors(read_table(measured, ERRORS_SCHEMA).to_pandas(), svg)
