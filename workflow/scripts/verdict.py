"""Rule verdict: says which cells ended in a fault; an error for a failed sweep or a strict run."""

from pathlib import Path

from gpushmoo.analysis.statuses import COLUMNS, FailedSweepError, StrictError, write_verdict
from gpushmoo.dataset import read_cells
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0], expected=(StrictError, FailedSweepError)) as terminal:
    write_verdict(
        read_cells(Path(snakemake.input.dataset), columns=COLUMNS),
        Path(snakemake.output[0]),
        snakemake.params.strict,
        snakemake.params.sweeps,
        terminal,
    )
