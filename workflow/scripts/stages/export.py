"""Writes the results for other programs."""

from pathlib import Path

from gpushmoo.exporting.write import export_run
from gpushmoo.storage.joblog import job_log, speaker

with job_log(snakemake.log[0]) as terminal:
    export_run(
        dataset=Path(snakemake.input.dataset),
        run=snakemake.params.run,
        out=Path(snakemake.output[0]),
        say=speaker(terminal, "export"),
    )
