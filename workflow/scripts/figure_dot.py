"""Rule figure_dot: one of the third document's plots, with ours in it."""

from pathlib import Path

from gpushmoo.analysis.dots import DOTS, copied_gbs, plot_series
from gpushmoo.analysis.published_dot import PLOTS, read_dot
from gpushmoo.dataset import read_medians
from gpushmoo.figures.dot import dot
from gpushmoo.job_params import ROOT
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0]):
    plot = snakemake.wildcards.plot
    cells = read_medians(Path(snakemake.input.dataset), {"kernel": DOTS})
    ours = plot_series(cells, PLOTS[plot].unit, square=plot.endswith("_square"))
    published = read_dot(ROOT / "reports/published/dot", plot)
    dot(published, ours, plot, Path(snakemake.output.svg), copied_gbs(cells))
