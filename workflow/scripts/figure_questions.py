"""Rule figure_questions: the first document's open questions, mechanism by mechanism."""

from pathlib import Path

import pandas as pd
from gpushmoo.figures.questions import questions
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0]):
    questions(pd.read_parquet(snakemake.input[0]), Path(snakemake.output.svg))
