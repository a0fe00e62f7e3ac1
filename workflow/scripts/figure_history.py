"""Rule figure_history: each group's best over runs.

In: the tables of a history. Out: the figure, and its title and caption beside it.
"""

from pathlib import Path

from gpushmoo.analysis.history import read_history
from gpushmoo.figures.timelines import draw_history
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    draw_history(read_history(Path(snakemake.input[0]).parent), Path(snakemake.output.svg))
