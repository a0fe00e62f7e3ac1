"""Rule figure_float3: requests at the partitions over time, by element type."""

from pathlib import Path

from gpushmoo.core.schema import PROFILE_SCHEMA, SIMULATION_SCHEMA
from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.store import read_table
from tesla_c1060.figures.float3 import float3

with job_log(snakemake.log[0]):
    float3(
        read_table(Path(snakemake.input.cells), SIMULATION_SCHEMA).to_pandas(),
        read_table(Path(snakemake.input.profile), PROFILE_SCHEMA).to_pandas(),
        Path(snakemake.output.svg),
    )
