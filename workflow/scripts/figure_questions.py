"""Rule figure_questions: the first document's open questions, mechanism by mechanism."""

from pathlib import Path

from gpushmoo.figures.questions import questions
from gpushmoo.joblog import job_log
from gpushmoo.schema import SIMULATION_SCHEMA
from gpushmoo.store import read_table

with job_log(snakemake.log[0]):
    table = read_table(Path(snakemake.input[0]), SIMULATION_SCHEMA)
    questions(table.to_pandas(), Path(snakemake.output.svg))
