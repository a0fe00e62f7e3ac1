"""Rule atlas: all figures of the first document, drawn from a simulated device, in one PDF."""

from pathlib import Path

from gpushmoo.core.paths import ROOT
from gpushmoo.storage.joblog import job_log
from tesla_c1060.atlas import build_atlas

with job_log(snakemake.log[0]):
    build_atlas(ROOT / snakemake.params.spec["file"], Path(snakemake.output.pdf))
