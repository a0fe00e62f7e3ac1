"""Rule explorer: all cells on one page for a browser.

In: the data set, and what the models predict. Out: ``explorer.html``.
"""

from pathlib import Path

from gpushmoo.explorer.explore import write_run_page
from gpushmoo.explorer.payload import ModelFiles
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    write_run_page(
        Path(snakemake.input.dataset),
        ModelFiles(
            Path(snakemake.input.predictions),
            Path(snakemake.input.shapes),
            next(map(Path, snakemake.input.device), None),
        ),
        snakemake.params.run,
        Path(snakemake.output[0]),
    )
