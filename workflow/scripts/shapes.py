"""Rule shapes: what limits block shapes, fitted to the kernels with mappings."""

from pathlib import Path

from gpushmoo.dataset import read_medians
from gpushmoo.job_params import ROOT
from gpushmoo.joblog import job_log
from gpushmoo.kernels import load_kernel
from gpushmoo.model.shapes import fit_shapes

with job_log(snakemake.log[0]):
    folders = snakemake.params.folders
    fit_shapes(
        read_medians(Path(snakemake.input.dataset), {"kernel": list(folders)}),
        {name: load_kernel(ROOT / folder).workload for name, folder in folders.items()},
        snakemake.params.holdout,
        snakemake.params.seed,
        Path(snakemake.output.fits),
        Path(snakemake.output.cells),
    )
