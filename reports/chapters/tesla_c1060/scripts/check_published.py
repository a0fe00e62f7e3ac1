"""Rule check_published: the first document's numbers beside ours."""

from pathlib import Path

from gpushmoo.core.paths import ROOT
from gpushmoo.storage.joblog import job_log
from tesla_c1060.checks import check_published

with job_log(snakemake.log[0]):
    spec = snakemake.params.spec
    check_published(
        ROOT / spec["file"], spec["levels"], spec["latency_cycles"], Path(snakemake.output[0])
    )
