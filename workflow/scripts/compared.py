"""Rule compared: two sides, one or more runs each, held against each other.

In: their Parquet files. Out: the tables, the summary, the picture, the page and the explorer of
the first runs, all in ``compare/``.
"""

from pathlib import Path

from gpushmoo.comparing.compare import compare
from gpushmoo.comparing.errors import CompareError
from gpushmoo.core.paths import ROOT
from gpushmoo.explorer.errors import ExplorerError
from gpushmoo.explorer.explore import PAGE_NAME, explore
from gpushmoo.report.comparison import build_comparison
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0], expected=(CompareError, ExplorerError)):
    spec = snakemake.params.spec
    folder = Path(snakemake.output[0]).parent
    found = compare(spec["a"], spec["b"], same=spec["same"], delta=spec["delta"])
    found.save(folder)
    build_comparison(found, ROOT / "reports", folder)
    explore(spec["a"][0], spec["b"][0], out=folder / PAGE_NAME)
