"""Rule verdict: tells the launches to use, and which cells ended in a fault.

An error for a failed sweep or a strict run. In: the report and its facts, the data set. Out:
``summary/verdict.txt``.
"""

from pathlib import Path

from gpushmoo.analysis.statuses import FailedSweepError, StrictError, judge_dataset
from gpushmoo.report.first_page import closing_lines
from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.wholefile import read_json

with job_log(snakemake.log[0], expected=(StrictError, FailedSweepError)) as terminal:
    page = read_json(Path(snakemake.input.facts))["first_page"]
    print(*closing_lines(page, snakemake.input.report), sep="\n", file=terminal, flush=True)
    judge_dataset(
        Path(snakemake.input.dataset),
        Path(snakemake.output[0]),
        snakemake.params.strict,
        snakemake.params.sweeps,
        terminal,
    )
