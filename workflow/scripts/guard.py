"""Rule guard: an error when a group's best surely got slower by more than delta.

In: the comparison's files. Out: ``compare/guard.txt``.
"""

from pathlib import Path

from gpushmoo.comparing.guarding import SlowerError, guard
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0], expected=(SlowerError,)):
    guard(Path(snakemake.input[0]).parent, Path(snakemake.output[0]))
