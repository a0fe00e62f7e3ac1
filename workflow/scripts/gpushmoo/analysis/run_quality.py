"""Judge the quality of a run: how its cells ended, and whether clocks and machine were steady.

The memcpy baselines, which are timed together with the cells, show whether the machine was steady.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ..core.errors import FailedSweepError, StrictError
from ..core.schema import FAULTS, Status
from ..core.space import TIMING_MODES, RelativeSize, known_problems, size_of
from ..storage.dataset import PROVENANCE, unreadable
from ..storage.wholefile import write_atomic

Floats = npt.NDArray[np.float64]

MEANING = {
    Status.OK: "measured and verified",
    Status.TOO_MANY_THREADS: "the block is over the limit of threads",
    Status.OUT_OF_RESOURCES: "the launch needs more registers, memory or grid than there is",
    Status.INVALID: "the kernel's workload.py says that it cannot be",
    Status.NOT_SEARCHED: "a search left it out: nothing is known of it",
    Status.SKIPPED: "not tried, since max_faults other cells of its code failed and none was right",
    Status.BUILD_FAILED: "the kernel did not compile, or the machine code lacks what is timed",
    Status.WORKLOAD_FAILED: "the kernel's workload.py raised an error or returned nothing of use",
    Status.LAUNCH_FAILED: "the launch failed",
    Status.WRONG_RESULT: "the output differs from the reference, or something else was written",
    Status.TIMING_MISMATCH: "the kernel works less while it is timed",
    Status.TIMEOUT: "a launch took longer than allowed",
    Status.THROTTLED: "the device throttled while it was measured",
    Status.DEVICE_LOST: "the device was lost before or during the cell",
}

# All columns of a data set that this module reads.
COLUMNS = (
    "cell_key",
    "kernel",
    "dtype",
    "variant",
    "height",
    "width",
    "cache_state",
    "timing_mode",
    "status",
    "message",
)


def faults(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells that ended in a fault (not those over a limit), with status and message."""
    bad = cells[cells["status"].isin([s.value for s in FAULTS])]
    return bad.sort_values(["kernel", "dtype", "variant", "cell_key"])


def verdict(cells: pd.DataFrame) -> str | None:
    """Return one sentence that counts the faults of a run by kind, or None without faults."""
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
    """Return why every cell of a sweep failed; None if a cell is ok, or if all are over a limit."""
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
    """Return the cells of a sweep, which is a mapping of its kernel and the lists of its values."""
    of_sweep = cells[cells["kernel"] == sweep["kernel"]]
    sizes = [size_of(size) for size in sweep["sizes"]]
    # Only the device knows the sizes that are relative to its cache.
    if not any(isinstance(size, RelativeSize) for size in sizes):
        pairs = [(problem.height, problem.width) for problem in known_problems(sizes)]
        of_size = pd.MultiIndex.from_frame(of_sweep[["height", "width"]]).isin(pairs)
        of_sweep = of_sweep[of_size]
    for column in ("dtype", "variant", "cache_state", "timing_mode"):
        of_sweep = of_sweep[of_sweep[column].isin(sweep[f"{column}s"])]
    return of_sweep


def write_verdict(
    cells: pd.DataFrame,
    out: Path,
    strict: bool,
    sweeps: Mapping[str, Mapping[str, Any]],
    terminal: TextIO,
    closing: Sequence[str] = (),
) -> None:
    """Report on `terminal`, and below the lines `closing` in the file `out`, whether cells failed.

    Parameters
    ----------
    cells
        Rows of a data set with the columns COLUMNS.
    out
        Text file to write.
    strict
        Whether any fault is an error.
    sweeps
        Sweeps by name, as `cells_of` takes them.
    terminal
        Stream for one line about the faults.
    closing
        Lines to write first.

    Raises
    ------
    StrictError
        If `strict` is set and a cell ended in a fault. The file is not written.
    FailedSweepError
        If all cells of a sweep failed. The file is not written.
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
    write_atomic(out, "\n".join([*closing, line, ""]).encode())


# Throttle reason by which NVML marks an idle device, whose clock is not that of the cells.
_IDLE = "gpu_idle"


def clocks_seen(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the range of ``core_mhz`` and ``memory_mhz`` of a busy device; None without readings.

    `readings` are those of a shard's metadata. The result also has the number of ``readings`` that
    count, and under ``reasons`` the number of readings with each reason to lower the core's clock.
    """
    busy = [r for r in readings if _IDLE not in r["reasons"]]
    if not busy:
        return None
    cores, memories = ([r[key] for r in busy] for key in ("sm_clock_mhz", "memory_clock_mhz"))
    return {
        "readings": len(busy),
        "core_mhz": [min(cores), max(cores)],
        "memory_mhz": [min(memories), max(memories)],
        "reasons": dict(Counter(reason for r in busy for reason in r["reasons"])),
    }


# Relative change of the copies' speed up to which the machine counts as steady.
STEADY = 0.02
# Launch overhead dominates shorter copies, and it varies more than memory does. On an H200 short
# copies changed by 1.2 % between repeats, and longer ones by 0.1 %.
LONG_S = 50e-6


@dataclass(frozen=True)
class CopyChanges:
    """Relative changes of the speed of the memcpy baselines.

    Attributes
    ----------
    copies
        Number of compared copies, each with other buffers. If some take LONG_S or more, only these.
    between
        Typical and largest change between repeats of the same copy; None without repeats.
    within
        Typical and largest change between the first and second half of a repeat's rounds; None with
        too few rounds.
    """

    copies: int
    between: tuple[float, float] | None
    within: tuple[float, float] | None

    @property
    def steady(self) -> bool:
        """Whether the typical change, between and within repeats, is at most STEADY."""
        return all(pair is None or pair[0] <= STEADY for pair in (self.between, self.within))


@dataclass(frozen=True)
class Steadiness:
    """Changes of copies within the device, and of copies from the host for `host_fed` kernels.

    `repeats` is the number of repeats of the run. If several recordings are combined, `once` names
    the kernels that have only one repeat.
    """

    repeats: int
    device: CopyChanges
    host: CopyChanges
    once: tuple[str, ...] = ()


def steadiness(
    provenance: Sequence[Mapping[str, Any]], host_fed: Collection[str] = ()
) -> Steadiness:
    """Return the steadiness of a run, from the provenance of all its shards and repeats."""
    copies: dict[bool, dict[tuple[Any, ...], list[Floats]]] = {False: {}, True: {}}
    repeats: dict[str, int] = {}
    for shard in provenance:
        params = shard["params"]
        kernel = params["folder"].rsplit("/", 1)[-1]
        repeats[kernel] = max(repeats.get(kernel, 1), params["repeat"])
        name = json.dumps({k: v for k, v in params.items() if k != "repeat"}, sort_keys=True)
        for control in shard["controls"]:
            if control["seconds"]:
                # Shards from before there were several timing modes do not name theirs.
                kind = control.get("timing_mode", TIMING_MODES[0])
                key = (name, control["height"], control["width"], control["cache_state"], kind)
                of_kind = copies[kernel in host_fed]
                of_kind.setdefault(key, []).append(np.asarray(control["seconds"]))
    most = max(repeats.values(), default=1)
    once = tuple(sorted(k for k, n in repeats.items() if n == 1 < most))
    device, host = (_copy_changes(list(copies[fed].values())) for fed in (False, True))
    return Steadiness(most, device, host, once)


def _copy_changes(copies: Sequence[Sequence[Floats]]) -> CopyChanges:
    """Return the changes of copies, each given as its seconds in each repeat."""
    medians = [[float(np.median(seconds)) for seconds in repeats] for repeats in copies]
    long = [repeats for repeats in medians if min(repeats) >= LONG_S]
    used = [
        (repeats, of_copy)
        for repeats, of_copy in zip(medians, copies, strict=True)
        if not long or min(repeats) >= LONG_S
    ]
    between = [_change(min(m), max(m)) for m, _ in used if len(m) > 1]
    halves = [np.array_split(s, 2) for _, repeats in used for s in repeats if len(s) >= 4]
    within = [_change(np.median(first), np.median(second)) for first, second in halves]
    return CopyChanges(len(used), _typical(between), _typical(within))


def _change(a: Any, b: Any) -> float:
    """Return the relative difference between two times, as a share of the smaller."""
    return float(max(a, b) / min(a, b) - 1.0)


def _typical(changes: Sequence[float]) -> tuple[float, float] | None:
    return (float(np.median(changes)), float(max(changes))) if changes else None


def dataset_provenance(dataset: Path) -> list[dict[str, Any]]:
    """Read the provenance of every shard of a data set, with ``clocks_seen`` for the readings."""
    try:
        if found := list(_provenance(dataset)):
            return found
        raise ValueError("it is empty")
    except (pa.ArrowException, OSError, ValueError) as err:
        raise unreadable(dataset, f"'{dataset / PROVENANCE}' is damaged: {err}") from err


def _provenance(dataset: Path) -> Iterator[dict[str, Any]]:
    with pa.CompressedInputStream(str(dataset / PROVENANCE), "zstd") as stream:
        rest = b""
        while block := stream.read(2**20):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                entry: dict[str, Any] = json.loads(line)
                entry["clocks_seen"] = clocks_seen(entry.pop("readings", ()))
                yield entry
