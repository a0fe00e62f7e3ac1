"""Rule simulate_tile_widths: the rule "tiles as wide as a partition" over other widths."""

from pathlib import Path

from gpushmoo.core.paths import ROOT
from gpushmoo.storage.joblog import job_log
from tesla_c1060.stages import simulate_tile_widths

with job_log(snakemake.log[0]):
    spec = snakemake.params.spec
    simulate_tile_widths(
        ROOT / spec["file"],
        spec["levels"],
        spec["tiles"],
        Path(snakemake.output[0]),
        snakemake.threads,
    )
