"""Makes the report: its facts and the PDF."""

from pathlib import Path

from gpushmoo.report.build import build_report
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    files = snakemake.input
    build_report(
        files={
            "dataset": Path(files.dataset),
            "best": Path(files.best),
            "peak": Path(files.peak),
            "figures": [Path(file) for file in files.figures],
            "machine": [Path(file) for file in files.machine],
            "device": [Path(file) for file in files.device],
            "counted": [Path(file) for file in files.counted],
            "extras": {
                name: [Path(file) for file in files.get(key)]
                for name, key in snakemake.params.spec["extras"].items()
            },
        },
        spec=snakemake.params.spec,
        facts=Path(snakemake.output.facts),
        pdf=Path(snakemake.output.pdf),
    )
