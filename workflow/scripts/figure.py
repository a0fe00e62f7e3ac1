"""Rule figure: one figure of measured cells."""

from pathlib import Path

from gpushmoo.analysis.ceiling import read_ceiling
from gpushmoo.dataset import matching, read_medians
from gpushmoo.joblog import job_log
from gpushmoo.store import read_table

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
        from gpushmoo.schema import PREDICTION_SCHEMA

        table = read_table(Path(snakemake.input.predictions), PREDICTION_SCHEMA)
        predictions = matching(table.to_pandas(), spec["where"])
        curve(cells, predictions, spec["x"], spec["unit"], svg, ceiling, spec["name_state"])
    elif snakemake.wildcards.kind == "footprint":
        from gpushmoo.figures.footprint import footprint
        from gpushmoo.model.shapes import SHAPE_SCHEMA
        from gpushmoo.wholefile import read_json

        table = read_table(Path(snakemake.input.shape_cells), SHAPE_SCHEMA)
        rows = matching(table.to_pandas(), spec["where"])
        fits = read_json(Path(snakemake.input.shapes))["fits"]
        footprint(rows, fits, svg, spec["name_state"])
    else:
        from gpushmoo.figures.workingset import workingset

        workingset(cells, spec["where"]["kernel"], svg, ceiling)
