"""Names the recommended launches and the cells that failed."""

from pathlib import Path

from gpushmoo.report.tables import verdict
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]) as terminal:
    verdict(
        report=snakemake.input.report,
        facts=Path(snakemake.input.facts),
        dataset=Path(snakemake.input.dataset),
        strict=snakemake.params.strict,
        sweeps=snakemake.params.sweeps,
        out=Path(snakemake.output[0]),
        terminal=terminal,
    )
