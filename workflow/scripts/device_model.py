"""Rule device_model: one set of parameters for a device, and what it predicts of every cell.

In: the data set, and code paths that were recorded beside it. Out: ``model/device.json`` and
``model/device.parquet``.
"""

from pathlib import Path

from gpushmoo.analysis.device_model.stage import fit_devices
from gpushmoo.storage.joblog import job_log

with job_log(snakemake.log[0]):
    fit_devices(
        Path(snakemake.input.dataset),
        snakemake.params.folders,
        next(map(Path, snakemake.input.get("code", [])), None),
        Path(snakemake.output.fits),
        Path(snakemake.output.cells),
    )
