"""Draws every figure of the document again, or copies the recorded PDF."""

from pathlib import Path

from gpushmoo.storage.joblog import job_log
from tesla_c1060.atlas import make_atlas

with job_log(snakemake.log[0]):
    make_atlas(
        asked=snakemake.params.asked,
        recorded=[Path(file) for file in snakemake.input.recorded],
        pdf=Path(snakemake.output.pdf),
    )
