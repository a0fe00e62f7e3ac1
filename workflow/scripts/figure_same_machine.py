"""Rule figure_same_machine: a simulated device against the measured one of its name."""

from pathlib import Path

import pandas as pd
from gpushmoo.figures.same_machine import same_machine
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0]):
    same_machine(pd.read_parquet(snakemake.input[0]), Path(snakemake.output.svg))
