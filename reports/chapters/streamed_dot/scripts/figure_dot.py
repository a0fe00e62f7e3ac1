"""Rule figure_dot: one of the third document's plots, with ours in it."""

from pathlib import Path

from gpushmoo.core.paths import CHAPTERS
from gpushmoo.storage.dataset import read_medians
from gpushmoo.storage.joblog import job_log
from streamed_dot.analysis import DOTS, copied_gbs, plot_series
from streamed_dot.figure_dot import dot
from streamed_dot.printed_plots import PLOTS, read_dot

with job_log(snakemake.log[0]):
    plot = snakemake.wildcards.plot
    cells = read_medians(Path(snakemake.input.dataset), {"kernel": DOTS})
    ours = plot_series(cells, PLOTS[plot].unit, square=plot.endswith("_square"))
    published = read_dot(CHAPTERS / "streamed_dot/published", plot)
    dot(published, ours, plot, Path(snakemake.output.svg), copied_gbs(cells))
