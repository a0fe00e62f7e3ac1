"""Rule figure_simulated: bandwidth of a simulated device over its number of blocks."""

from pathlib import Path

import pandas as pd
from gpushmoo.figures.simulated import simulated
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0]):
    simulated(pd.read_parquet(snakemake.input[0]), Path(snakemake.output.svg))
