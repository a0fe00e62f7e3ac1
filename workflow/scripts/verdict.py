"""Rule verdict: says which cells ended in a fault; ends with an error when the run is strict."""

from pathlib import Path

from gpushmoo.analysis.statuses import COLUMNS, StrictError, write_verdict
from gpushmoo.dataset import read_cells
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0], expected=(StrictError,)) as terminal:
    write_verdict(
        read_cells(Path(snakemake.input.dataset), columns=COLUMNS),
        Path(snakemake.output[0]),
        snakemake.params.strict,
        terminal,
    )
