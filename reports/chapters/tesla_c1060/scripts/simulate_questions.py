"""Rule simulate_questions: what the first document leaves open."""

from pathlib import Path

from gpushmoo.core.paths import ROOT
from gpushmoo.storage.joblog import job_log
from tesla_c1060.questions import answer_questions

with job_log(snakemake.log[0]):
    spec = snakemake.params.spec
    answer_questions(
        ROOT / spec["file"],
        spec["questions"],
        Path(snakemake.output.cells),
        Path(snakemake.output.profile),
        snakemake.threads,
    )
