"""How the cells of a run ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from ..core.errors import UserError
from ..core.schema import FAULTS, Status
from ..storage.dataset import read_cells
from ..storage.wholefile import write_summed

MEANING = {
    Status.OK: "measured and verified",
    Status.TOO_MANY_THREADS: "the block is over the limit of threads",
    Status.RESOURCES: "the launch needs more registers, memory or grid than there is",
    Status.INVALID: "the kernel's workload.py says that it cannot be",
    Status.UNPROPOSED: "a search left it out: nothing is known of it",
    Status.BUILD_FAILED: "the kernel did not compile, or the machine code lacks what is timed",
    Status.WORKLOAD_FAILED: "the kernel's workload.py raised an error or returned nothing of use",
    Status.LAUNCH_FAILED: "the launch failed",
    Status.WRONG_RESULT: "the output differs from the reference, or something else was written",
    Status.TIMEOUT: "a launch took longer than allowed",
    Status.THROTTLED: "the device throttled while it was measured",
    Status.LOST_DEVICE: "the device was lost before or during the cell",
}

# Of a dataset all that this module asks.
COLUMNS = (
    *("cell_key", "kernel", "dtype", "variant", "height", "width"),
    *("cache_state", "launch_kind"),
    *("status", "message"),
)


class StrictError(UserError):
    """A strict run has cells that ended in a fault; one sentence."""


class FailedSweepError(UserError):
    """Nothing of a sweep could be measured; a sentence for each such sweep."""


def status_counts(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells by kernel, dtype, variant (rows) and status (columns, in the order of Status)."""
    counts = (
        cells.groupby(["kernel", "dtype", "variant", "status"], observed=True)
        .size()
        .unstack("status", fill_value=0)
    )
    return counts.reindex(columns=[s.value for s in Status if s.value in counts.columns])


def faults(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells that ended in a fault (not those over a limit), with status and message."""
    bad = cells[cells["status"].isin([s.value for s in FAULTS])]
    return bad.sort_values(["kernel", "dtype", "variant", "cell_key"])


def verdict(cells: pd.DataFrame) -> str | None:
    """One sentence on the faults of a run; None when it has none."""
    bad = faults(cells)
    if bad.empty:
        return None
    parts = [
        f"{n} {status} in {kernel} {dtype} {variant}"
        for (kernel, dtype, variant, status), n in bad.groupby(
            ["kernel", "dtype", "variant", "status"], observed=True
        )
        .size()
        .items()
    ]
    return f"{len(bad)} of {len(cells)} cells ended in a fault: {'; '.join(parts)}."


def failed_sweep(name: str, cells: pd.DataFrame) -> str | None:
    """Why none of the sweep's `cells` is ok; None when one is, or when all are over a limit."""
    bad = faults(cells).fillna({"message": "no message"})
    if bad.empty or (cells["status"] == Status.OK).any():
        return None
    (status, message), _ = max(
        bad.groupby(["status", "message"], observed=True).size().items(), key=lambda item: item[1]
    )
    return (
        f"No cell of the sweep '{name}' could be measured: {len(bad)} failed, most of them "
        f"{status} ({message})."
    )


def cells_of(cells: pd.DataFrame, sweep: Mapping[str, Any]) -> pd.DataFrame:
    """The cells of a sweep, given as the kernel and lists of what its cells are made of."""
    sizes = [(height, width) for height, width in sweep["sizes"]]
    of_size = pd.MultiIndex.from_frame(cells[["height", "width"]]).isin(sizes)
    of_sweep = cells[(cells["kernel"] == sweep["kernel"]) & of_size]
    for column in ("dtype", "variant", "cache_state", "launch_kind"):
        of_sweep = of_sweep[of_sweep[column].isin(sweep[f"{column}s"])]
    return of_sweep


def judge_dataset(
    dataset: Path, out: Path, strict: bool, sweeps: Mapping[str, Mapping[str, Any]], to: TextIO
) -> None:
    """`write_verdict` of the data set in a folder, on the terminal `to`."""
    write_verdict(read_cells(dataset, columns=COLUMNS), out, strict, sweeps, to)


def write_verdict(
    cells: pd.DataFrame,
    out: Path,
    strict: bool,
    sweeps: Mapping[str, Mapping[str, Any]],
    terminal: TextIO,
) -> None:
    """Say on `terminal` and in the file `out` whether cells ended in a fault.

    `sweeps` are what `cells_of` takes, by name. Instead of writing the file raises
    FailedSweepError when one of them has no cell but failed ones, and StrictError when there are
    faults and the run is strict.
    """
    sentence = verdict(cells)
    if sentence is not None and strict:
        raise StrictError(f"{sentence} (strict: true)")
    if sentence is not None:
        terminal.write(f"gpushmoo: {sentence} The report names them.\n")
        sentences = (failed_sweep(name, cells_of(cells, sweep)) for name, sweep in sweeps.items())
        failed = [text for text in sentences if text is not None]
        if failed:
            raise FailedSweepError(" ".join(failed))
    line = sentence or f"All {len(cells)} cells ended as they may."
    write_summed(out, f"{line}\n".encode())
