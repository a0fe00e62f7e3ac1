"""Rule figure_float3: requests at the partitions over time, by element type."""

from pathlib import Path

import pandas as pd
from gpushmoo.figures.float3 import float3
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0]):
    float3(
        pd.read_parquet(snakemake.input.cells),
        pd.read_parquet(snakemake.input.profile),
        Path(snakemake.output.svg),
    )
