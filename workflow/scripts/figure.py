"""Rule figure: one figure of measured cells."""

from pathlib import Path

import pandas as pd
from gpushmoo.dataset import read_cells
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0]):
    spec, svg = snakemake.params.spec, Path(snakemake.output.svg)
    names = ["kernel", "height", "width"]
    cells = read_cells(Path(snakemake.input.dataset))
    cells = cells[(cells[names] == [spec[n] for n in names]).all(axis=1)]
    if snakemake.wildcards.kind == "heatmap":
        from gpushmoo.figures.heatmap import heatmap

        heatmap(cells, spec["x"], spec["y"], spec["dtypes"], svg)
    else:
        from gpushmoo.figures.curve import curve

        predictions = pd.read_parquet(snakemake.input.predictions)
        predictions = predictions[(predictions[names] == [spec[n] for n in names]).all(axis=1)]
        curve(cells, predictions, spec["x"], spec["unit"], svg)
