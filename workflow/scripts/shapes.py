"""Rule shapes: what limits block shapes, fitted to the kernels with mappings.

In: the data set. Out: ``model/shapes.json`` and ``model/shapes.parquet``.
"""

from pathlib import Path

from gpushmoo.analysis.models.shapes import fit_mapped_kernels
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    fit_mapped_kernels(
        Path(snakemake.input.dataset),
        snakemake.params.folders,
        snakemake.params.holdout,
        snakemake.params.seed,
        Path(snakemake.output.fits),
        Path(snakemake.output.cells),
    )
