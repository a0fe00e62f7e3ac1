"""Rule report: facts for the template, and the PDF.

In: the data set, what was concluded from it, and the figures. Out: ``report.json``, ``report.pdf``.
"""

from pathlib import Path

from gpushmoo.core.paths import ROOT
from gpushmoo.report.build import ReportFiles, build_report
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    files = ReportFiles(
        dataset=Path(snakemake.input.dataset),
        best=Path(snakemake.input.best),
        ceiling=Path(snakemake.input.ceiling),
        model=Path(snakemake.input.model),
        shapes=Path(snakemake.input.shapes),
        machine=tuple(Path(p) for p in snakemake.input.machine),
        device=tuple(Path(p) for p in snakemake.input.device),
        counted=tuple(Path(p) for p in snakemake.input.counted),
        energy=tuple(Path(p) for p in snakemake.input.energy),
        history=tuple({Path(p).parent for p in snakemake.input.history}),
        compared=tuple(Path(p) for p in snakemake.input.compared),
        figures=tuple(Path(p) for p in snakemake.input.figures),
    )
    build_report(
        files,
        snakemake.params.spec,
        ROOT / "reports",
        Path(snakemake.output.facts),
        Path(snakemake.output.pdf),
    )
