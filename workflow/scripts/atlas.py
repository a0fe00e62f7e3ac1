"""Rule atlas: all figures of the first document, drawn from a simulated device, in one PDF."""

from pathlib import Path

from gpushmoo.job_params import ROOT
from gpushmoo.joblog import job_log
from gpushmoo.report.atlas import build_atlas

with job_log(snakemake.log[0]):
    build_atlas(ROOT / snakemake.params.spec["file"], ROOT / "reports", Path(snakemake.output.pdf))
