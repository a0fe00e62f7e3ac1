"""Puts the run beside earlier ones."""

from pathlib import Path

from gpushmoo.comparing.run_history import write_history
from gpushmoo.storage.joblog import job_log, speaker

with job_log(snakemake.log[0]) as terminal:
    write_history(
        dataset=Path(snakemake.input.dataset),
        spec=snakemake.params.spec,
        tables=[Path(table) for table in snakemake.output.tables],
        say=speaker(terminal, "history"),
    )
