"""Rule figure_energy: bandwidth against energy.

In: the table of energy. Out: the figure, and its title and caption beside it.
"""

from pathlib import Path

from gpushmoo.analysis.energy import read_energy
from gpushmoo.figures.energy import energy_front
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    energy_front(read_energy(Path(snakemake.input[0])), Path(snakemake.output.svg))
