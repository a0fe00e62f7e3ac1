"""Rule explorer: all cells on one page for a browser.

In: the data set, what the models predict, and the history. Out: ``explorer.html``.
"""

from pathlib import Path

from gpushmoo.explorer.explore import write_run_page
from gpushmoo.explorer.payload import StageFiles
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    write_run_page(
        Path(snakemake.input.dataset),
        StageFiles(
            Path(snakemake.input.predictions),
            Path(snakemake.input.shapes),
            next(map(Path, snakemake.input.device), None),
            next((Path(file).parent for file in snakemake.input.history), None),
        ),
        snakemake.params.run,
        Path(snakemake.output[0]),
    )
