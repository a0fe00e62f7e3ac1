"""Rule figure_dot: one of the third document's plots, with ours in it."""

from pathlib import Path

from gpushmoo.analysis.dots import plot_series
from gpushmoo.analysis.published_dot import PLOTS, read_dot
from gpushmoo.dataset import read_cells
from gpushmoo.figures.dot import dot
from gpushmoo.joblog import job_log
from gpushmoo.plan import ROOT

with job_log(snakemake.log[0]):
    plot = snakemake.wildcards.plot
    ours = plot_series(read_cells(Path(snakemake.input.dataset)), PLOTS[plot].unit)
    dot(read_dot(ROOT / "reports/published/dot", plot), ours, plot, Path(snakemake.output.svg))
