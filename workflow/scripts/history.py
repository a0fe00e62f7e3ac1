"""Rule history: the run beside earlier ones, in the order of time.

In: the data set, and those of the earlier runs. Out: each group's best in each run, where its mean
changed, and a summary, all in ``history/``.
"""

from pathlib import Path

from gpushmoo.comparing.history import run_history
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]) as terminal:
    spec = snakemake.params.spec
    found = run_history(
        Path(snakemake.input.dataset), spec["run"], spec["earlier"], spec["otava"], spec["delta"]
    )
    for sentence in (*found.left_out, *filter(None, [found.why])):
        print(f"gpushmoo: history: {sentence}", file=terminal, flush=True)
    found.save(Path(snakemake.output[0]).parent)
