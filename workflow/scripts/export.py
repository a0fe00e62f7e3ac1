"""Rule export: a run's results in the forms that other programs read.

In: the data set. Out: the folder ``export``.
"""

from pathlib import Path

from gpushmoo.exporting.errors import ExportError
from gpushmoo.exporting.write import write_exports
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0], expected=(ExportError,)) as terminal:
    done = write_exports(
        Path(snakemake.input.dataset), snakemake.params.run, Path(snakemake.output[0])
    )
    for sentence in done.notes:
        print(f"gpushmoo: {sentence}", file=terminal)
