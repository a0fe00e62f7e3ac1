"""The record of a device as the pages read it: cells, provenance, readings, benchmarks."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import tied_best
from gpushmoo.analysis.fastest import fastest
from gpushmoo.analysis.peak import PeakRow, peak_rows
from gpushmoo.analysis.run_quality import dataset_provenance
from gpushmoo.storage.dataset import read_medians
from gpushmoo.storage.store import open_shard, unpacked

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "reports" / "reference"
PEAK_KERNELS = {"global_load": "load", "global_store": "store"}


class MissingError(Exception):
    """The record lacks cells that a page speaks of; one sentence that names them."""


def read_json(path: str) -> Any:
    """A recorded file, by its path below reports/reference/."""
    return json.loads((REFERENCE / path).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Record:
    """All cells of the shards under `folder`, one row each, and where they came from.

    `cells` are what `gpushmoo.storage.dataset.read_medians` reads.
    """

    folder: Path
    cells: pd.DataFrame
    provenance: list[dict[str, Any]]

    @cached_property
    def ok(self) -> pd.DataFrame:
        """Return the cells that were verified."""
        return self.cells[self.cells["status"] == "ok"]

    @cached_property
    def peak(self) -> list[PeakRow]:
        """The fastest loads and stores for each number of bytes touched."""
        return peak_rows(self.ok, PEAK_KERNELS)

    def of(self, kernel: str, **where: Any) -> pd.DataFrame:
        """The verified cells of `kernel` whose columns have the values `where`; never none.

        Raises MissingError where the record has no such cell.
        """
        found = self._by_kernel.get(kernel, self.ok.iloc[:0])
        for name, value in where.items():
            found = found[found[name] == value]
        if found.empty:
            asked = ", ".join(f"{n} {v}" for n, v in where.items())
            raise MissingError(f"The record has no verified cell of {kernel} with {asked}.")
        return found

    @cached_property
    def _by_kernel(self) -> dict[str, pd.DataFrame]:
        return {str(k): rows for k, rows in self.ok.groupby("kernel", observed=True)}

    def best(self, kernel: str, **where: Any) -> pd.Series:
        """The fastest of these cells, by bandwidth."""
        return fastest(self.of(kernel, **where), ["kernel"]).iloc[0]

    def tied(self, kernel: str, **where: Any) -> pd.DataFrame:
        """The tied best set of these cells, which are of one group, the fastest first."""
        return tied_best(self.of(kernel, **where))

    def readings(self) -> pd.DataFrame:
        """NVML's readings before and after the rounds, a row each."""
        shards = (open_shard(path).metadata for path in _shards(self.folder))
        return pd.DataFrame(r for shard in shards for r in shard.get("readings") or [])

    def benchmark(self, name: str) -> Any:
        """A comparison that a script of experiments/ wrote beside the shards."""
        return json.loads((self.folder / "benchmarks" / f"{name}.json").read_text("utf-8"))


def read_record(name: str = "nvidia-h200") -> Record:
    """Read and check all shards of a record. Raises AggregateError naming the bad ones."""
    folder = REFERENCE / name
    with TemporaryDirectory() as scratch:
        dataset = Path(scratch) / "dataset"
        aggregate(_shards(folder), dataset)
        return Record(folder, read_medians(dataset), dataset_provenance(dataset))


def _shards(folder: Path) -> list[Path]:
    return sorted(unpacked(folder).rglob("*.parquet"))
