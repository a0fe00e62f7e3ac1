"""Rule best: the sets of best cells."""

from pathlib import Path

from gpushmoo.analysis.best import best_of_dataset
from gpushmoo.analysis.ceiling import read_ceiling
from gpushmoo.analysis.edges import Limits
from gpushmoo.joblog import job_log
from gpushmoo.store import write_parquet

with job_log(snakemake.log[0]):
    dataset = Path(snakemake.input.dataset)
    ceiling = read_ceiling(Path(snakemake.input.ceiling))
    best = best_of_dataset(
        dataset,
        ceiling,
        snakemake.params.host_fed,
        Limits(snakemake.params.most, snakemake.params.threads),
    )
    write_parquet(best, Path(snakemake.output[0]), {})
