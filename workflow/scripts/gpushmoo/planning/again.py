"""Find outputs of a run that must be made again although Snakemake considers them up to date."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path

from ..core.errors import BadParquetError, DamagedFileError
from ..core.schema import Status
from ..devices.build_file import read_build
from ..storage.store import check_table, is_complete_file, open_shard
from ..storage.wholefile import read_complete, read_json
from .flow import Flow

# The script of the rule that compiles a kernel and element type.
BUILDING = "build_kernel.py"
# What reads a product to its end; any other is read by `read_complete`.
_READERS = {".json": read_json, ".parquet": check_table}


class Remaking:
    """Finds outputs that are damaged, and outputs that the key `remeasure` selects.

    The key selects shards with cells of certain statuses, and build files with versions that ended
    with these statuses. `asked` contains the output paths of all jobs that Snakemake has checked so
    far.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._damaged: dict[str, bool] = {}
        self.asked: set[str] = set()

    def faulty(self, script: str, wildcards: Collection[str], paths: list[str]) -> set[str]:
        """Return the outputs of a job that Snakemake must make again.

        Parameters
        ----------
        script
            Path of the script of the job's rule, empty for a rule without a script.
        wildcards
            Names of the rule's wildcards.
        paths
            Paths of the job's outputs.
        """
        self.asked.update(paths)
        measures = "shard" in wildcards
        again = {path for path in paths if self._is_damaged(path, measures)}
        statuses = self._flow.config.remeasure
        if measures and statuses:
            again |= remeasured_shards(self._flow).intersection(paths)
        if script.endswith(BUILDING):
            again |= {path for path in paths if ended_as(statuses, Path(path))}
        return again

    def _is_damaged(self, path: str, measures: bool) -> bool:
        """Return whether an output is damaged. Print the damage when a path is checked first."""
        if path in self._damaged:
            return self._damaged[path]
        fault = damage(Path(path), ends_alone=measures)
        if measures and Path(self._flow.dataset).exists() and not Path(path).exists():
            # Snakemake itself does not miss what only finished files were made of.
            fault = f"'{path}' is missing."
        if fault is not None:
            again = "measured" if measures else "made"
            print(f"gpushmoo: {fault} It is not used but {again} again.", file=sys.stderr)
        self._damaged[path] = fault is not None
        return self._damaged[path]


def ended_as(statuses: Collection[Status], path: Path) -> bool:
    """Return whether a version in the build file `path` ended with one of `statuses`.

    A missing or damaged file counts as a file without such versions.
    """
    if not statuses or not path.exists():
        return False
    try:
        targets = read_build(path).targets.values()
    except DamagedFileError:
        return False
    return any(made.status in statuses for versions in targets for made in versions.values())


@cache
def remeasured_shards(flow: Flow) -> frozenset[str]:
    """Return the shards with cells that the key `remeasure` selects, and print their number.

    The result is cached, so a run prints it once.
    """
    counts = cells_ended_as(flow.config.remeasure, flow.shard_files)
    print(f"gpushmoo: {sentence(counts)}", file=sys.stderr)
    return frozenset(counts)


def cells_ended_as(
    statuses: Collection[Status], paths: Iterable[str]
) -> dict[str, Counter[Status]]:
    """Count the cells that ended with one of `statuses`.

    Parameters
    ----------
    statuses
        The statuses to count.
    paths
        Files of shards. Missing and damaged ones are skipped.

    Returns
    -------
    dict
        For each file with at least one such cell, the number of cells by status.
    """
    counts = {path: _count(statuses, Path(path)) for path in paths if Path(path).exists()}
    return {path: cells for path, cells in counts.items() if cells}


def _count(statuses: Collection[Status], path: Path) -> Counter[Status]:
    try:
        ended = open_shard(path).table().column("status").to_pylist()
    except BadParquetError:
        return Counter()
    return Counter(Status(status) for status in ended if status in statuses)


def sentence(counts: Mapping[str, Counter[Status]]) -> str:
    """Return the sentence for the terminal that says how many cells are measured again.

    Parameters
    ----------
    counts
        Number of cells by file and status, see `cells_ended_as`.
    """
    cells = sum(counts.values(), Counter[Status]())
    if not cells:
        return "remeasure: no cell ended so; nothing is measured again."
    parts = ", ".join(f"{n} {status}" for status, n in sorted(cells.items()))
    shards = "1 shard" if len(counts) == 1 else f"{len(counts)} shards"
    return f"remeasure: {cells.total()} cells ({parts}) in {shards} and their later repeats."


def damage(path: Path, ends_alone: bool = False) -> str | None:
    """Return a sentence on how an output is damaged, or None if it is intact or missing.

    Parameters
    ----------
    path
        A file, or a folder of files. For Parquet files in a folder, only both ends of each are
        read.
    ends_alone
        Whether to read only both ends of the file, because a shard may contain gigabytes. Otherwise
        the whole file is read.
    """
    if not path.exists():
        return None
    try:
        if path.is_dir():
            for file in path.rglob("[!.]*.*"):
                if file.stat().st_size == 0 or (
                    file.suffix == ".parquet" and not is_complete_file(file)
                ):
                    name = file.relative_to(path)
                    raise BadParquetError(path, f"is not whole: '{name}' is cut off.")
        elif not ends_alone:
            _READERS.get(path.suffix, read_complete)(path)
        elif not is_complete_file(path):
            raise BadParquetError(path, "is not a whole Parquet file (truncated or foreign).")
    except DamagedFileError as err:
        return str(err)
    return None
