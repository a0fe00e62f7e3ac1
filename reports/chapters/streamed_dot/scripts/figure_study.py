"""Rule figure_study: draws a time line, rivals in rounds, or errors."""

from pathlib import Path

from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.store import read_table
from streamed_dot.figure_errors import errors
from streamed_dot.figure_rivals import rivals
from streamed_dot.figure_timeline import timeline
from streamed_dot.numerics import ERRORS_SCHEMA
from streamed_dot.rivals import RIVALS_SCHEMA
from streamed_dot.timeline import read_timeline

with job_log(snakemake.log[0]):
    measured, svg = Path(snakemake.input[0]), Path(snakemake.output.svg)
    if snakemake.wildcards.study == "timeline":
        timeline(read_timeline(measured), svg)
    elif snakemake.wildcards.study == "rivals":
        rivals(read_table(measured, RIVALS_SCHEMA).to_pandas(), svg)
    else:
        errors(read_table(measured, ERRORS_SCHEMA).to_pandas(), svg)
