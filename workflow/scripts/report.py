"""Rule report: facts for the template, and the PDF."""

from pathlib import Path

from gpushmoo.job_params import ROOT
from gpushmoo.joblog import job_log
from gpushmoo.report.build import ReportFiles, build_report

with job_log(snakemake.log[0]):
    files = ReportFiles(
        dataset=Path(snakemake.input.dataset),
        best=Path(snakemake.input.best),
        ceiling=Path(snakemake.input.ceiling),
        model=Path(snakemake.input.model),
        shapes=Path(snakemake.input.shapes),
        checks=tuple(Path(p) for p in snakemake.input.checks),
        tables=tuple(Path(p) for p in snakemake.input.tables),
        questions=tuple(Path(p) for p in snakemake.input.questions),
        measured=tuple(Path(p) for p in snakemake.input.measured),
        figures=tuple(Path(p) for p in snakemake.input.figures),
    )
    build_report(
        files,
        snakemake.params.spec,
        ROOT / "reports",
        Path(snakemake.output.facts),
        Path(snakemake.output.pdf),
    )
