"""Rule check_published: the first document's numbers beside ours."""

from pathlib import Path

from gpushmoo.job_params import ROOT
from gpushmoo.joblog import job_log
from gpushmoo.model.simulate import check_published

with job_log(snakemake.log[0]):
    check_published(ROOT / snakemake.params.spec["file"], Path(snakemake.output[0]))
