"""Makes a table of a simulated device."""

from pathlib import Path

from gpushmoo.storage.joblog import job_log
from tesla_c1060.stages import make_table

with job_log(snakemake.log[0]):
    make_table(
        asked=snakemake.params.asked,
        out=Path(snakemake.output[0]),
        threads=snakemake.threads,
    )
