"""Describes the cells of recorded shards, as the model of a device sees them.

    export PYTHONPATH=workflow/scripts:kernels
    python experiments/benchmarks/described_cells.py --record reports/reference/nvidia-h200 \
        --out described.parquet

A row a cell: what `gpushmoo.analysis.device_model` sees of it, the launch parameters, and what was
measured. Kernels whose data come from the host are left out. Needs no device.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from gpushmoo.analysis.aggregate import aggregate, dataset_provenance
from gpushmoo.analysis.device_model.describe import Describer, code_paths, device_facts
from gpushmoo.analysis.device_model.stage import recorded_codes
from gpushmoo.core.paths import ROOT
from gpushmoo.core.schema import is_axis
from gpushmoo.storage.dataset import partitions, read_medians
from gpushmoo.storage.packed import unpacked
from gpushmoo.workloads.loader import load_kernel


def main() -> None:
    """Write one Parquet file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    described_cells(options.record).to_parquet(options.out)


def described_cells(record: Path) -> pd.DataFrame:
    """The described cells of the shards in `record`, with launch parameters and results."""
    with TemporaryDirectory() as folder:
        dataset = Path(folder) / "dataset"
        aggregate(sorted(unpacked(record).rglob("*.parquet")), dataset)
        cells, provenance = read_medians(dataset), dataset_provenance(dataset)
        kernels = {str(where["kernel"]) for where in partitions(dataset)}
    code = record / "code_paths.json"
    codes = recorded_codes(code if code.is_file() else None) | code_paths(provenance)
    workloads = {name: load_kernel(ROOT / "kernels" / name).workload for name in kernels}
    described, why = Describer(workloads, codes, device_facts(provenance)).table(cells)
    for kernel, sentence in sorted(why.items()):
        print(f"{kernel}: left out, {sentence}")
    more = [n for n in cells if is_axis(n)]
    told = cells[["cell_key", "tiles", "resident_per_unit", "threads_per_block", *more]]
    # Nothing that reads the file shall have to know nullable numbers.
    plain = told.astype(dict.fromkeys(more, "float64"))
    return described.merge(plain, on="cell_key")


if __name__ == "__main__":
    main()
