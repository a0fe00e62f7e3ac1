"""Rule figure_questions: the first document's open questions, mechanism by mechanism."""

from pathlib import Path

from gpushmoo.core.schema import SIMULATION_SCHEMA
from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.store import read_table
from tesla_c1060.figures.questions import questions

with job_log(snakemake.log[0]):
    table = read_table(Path(snakemake.input[0]), SIMULATION_SCHEMA)
    questions(table.to_pandas(), Path(snakemake.output.svg))
