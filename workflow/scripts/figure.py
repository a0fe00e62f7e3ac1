"""Rule figure: one figure of measured cells."""

from pathlib import Path

import pandas as pd
from gpushmoo.analysis.ceiling import read_ceiling
from gpushmoo.dataset import matching, read_medians
from gpushmoo.joblog import job_log

with job_log(snakemake.log[0]):
    spec, svg = snakemake.params.spec, Path(snakemake.output.svg)
    cells = read_medians(Path(snakemake.input.dataset), spec["where"])
    ceiling = read_ceiling(Path(snakemake.input.ceiling))
    if snakemake.wildcards.kind == "heatmap":
        from gpushmoo.figures.heatmap import heatmap

        heatmap(
            cells,
            spec["x"],
            spec["y"],
            spec["dtypes"],
            svg,
            ceiling,
            spec["name_state"],
            spec["controls"],
        )
    elif snakemake.wildcards.kind == "curve":
        from gpushmoo.figures.curve import curve

        predictions = pd.read_parquet(snakemake.input.predictions)
        predictions = matching(predictions, spec["where"])
        curve(cells, predictions, spec["x"], spec["unit"], svg, ceiling, spec["name_state"])
    elif snakemake.wildcards.kind == "footprint":
        import json

        from gpushmoo.figures.footprint import footprint

        rows = matching(pd.read_parquet(snakemake.input.shape_cells), spec["where"])
        fits = json.loads(Path(snakemake.input.shapes).read_text())["fits"]
        footprint(rows, fits, svg, spec["name_state"])
    else:
        from gpushmoo.figures.workingset import workingset

        workingset(cells, spec["where"]["kernel"], svg, ceiling)
