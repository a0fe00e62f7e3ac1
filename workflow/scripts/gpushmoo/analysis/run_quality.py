"""How a run went: how its cells ended, and whether clocks and machine were steady.

The machine's steadiness is judged by the memcpy baselines, which are timed with the cells.
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

from ..core.errors import UserError
from ..core.schema import FAULTS, Status
from ..core.space import TIMING_MODES, RelativeSize, known_problems, size_of
from ..storage.dataset import PROVENANCE, unreadable
from ..storage.wholefile import write_whole

Floats = npt.NDArray[np.float64]

MEANING = {
    Status.OK: "measured and verified",
    Status.TOO_MANY_THREADS: "the block is over the limit of threads",
    Status.RESOURCES: "the launch needs more registers, memory or grid than there is",
    Status.INVALID: "the kernel's workload.py says that it cannot be",
    Status.UNPROPOSED: "a search left it out: nothing is known of it",
    Status.SKIPPED: "not tried, since max_faults other cells of its code failed and none was right",
    Status.BUILD_FAILED: "the kernel did not compile, or the machine code lacks what is timed",
    Status.WORKLOAD_FAILED: "the kernel's workload.py raised an error or returned nothing of use",
    Status.LAUNCH_FAILED: "the launch failed",
    Status.WRONG_RESULT: "the output differs from the reference, or something else was written",
    Status.FALSE_TIME: "the kernel works less while it is timed",
    Status.TIMEOUT: "a launch took longer than allowed",
    Status.THROTTLED: "the device throttled while it was measured",
    Status.LOST_DEVICE: "the device was lost before or during the cell",
}

# Of a dataset all that this module asks.
COLUMNS = (
    *("cell_key", "kernel", "dtype", "variant", "height", "width"),
    *("cache_state", "timing_mode"),
    *("status", "message"),
)


class StrictError(UserError):
    """A strict run has cells that ended in a fault; one sentence."""


class FailedSweepError(UserError):
    """Nothing of a sweep could be measured; a sentence for each such sweep."""


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
    of_sweep = cells[cells["kernel"] == sweep["kernel"]]
    sizes = [size_of(size) for size in sweep["sizes"]]
    # What other sizes than these are is known by the device alone.
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
    """Say on `terminal` and in the file `out`, below `closing`, whether cells ended in a fault.

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
    write_whole(out, "\n".join([*closing, line, ""]).encode())


# The reason that NVML gives for an idle device, whose clock is not that of the cells.
_IDLE = "gpu_idle"


def clocks_seen(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Lowest and highest ``core_mhz`` and ``memory_mhz`` of a device at work; None of no readings.

    `readings` are those of a shard's metadata. ``readings`` says how many count, ``reasons`` how
    many of them name each reason for which the core's clock was held down.
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


# A change of the copies' speed that is no news.
STEADY = 0.02
# Copies that take less are mostly the start of a launch, which varies more than memory does: on an
# H200 they changed by 1.2 % between repeats where longer ones did by 0.1 %.
LONG_S = 50e-6


@dataclass(frozen=True)
class CopyChanges:
    """Relative changes of the speed of the memcpy baselines; None without any.

    `between` are the typical and the largest change between repeats of the same copies, `within`
    those between the first and the second half of a repeat's rounds; `copies` is how many copies
    of different buffers were looked at (those of LONG_S and more, where there are some).
    """

    copies: int
    between: tuple[float, float] | None
    within: tuple[float, float] | None

    @property
    def steady(self) -> bool:
        """Whether no change that was looked at is large for half of the copies or more."""
        return all(pair is None or pair[0] <= STEADY for pair in (self.between, self.within))


@dataclass(frozen=True)
class Steadiness:
    """How copies within the device changed, and those from the host to `host_fed` kernels.

    `repeats` is how often the run measured. Of several recordings put together, `once` are the
    kernels that only ones of a single repeat have.
    """

    repeats: int
    device: CopyChanges
    host: CopyChanges
    once: tuple[str, ...] = ()


def steadiness(
    provenance: Sequence[Mapping[str, Any]], host_fed: Collection[str] = ()
) -> Steadiness:
    """The steadiness of a run, from the provenance of all its shards and repeats."""
    copies: dict[bool, dict[tuple[Any, ...], list[Floats]]] = {False: {}, True: {}}
    repeats: dict[str, int] = {}
    for shard in provenance:
        params = shard["params"]
        kernel = params["folder"].rsplit("/", 1)[-1]
        repeats[kernel] = max(repeats.get(kernel, 1), params["repeat"])
        name = json.dumps({k: v for k, v in params.items() if k != "repeat"}, sort_keys=True)
        for control in shard["controls"]:
            if control["seconds"]:
                # Shards of before there were several timing modes do not name theirs.
                kind = control.get("timing_mode", TIMING_MODES[0])
                key = (name, control["height"], control["width"], control["cache_state"], kind)
                of_kind = copies[kernel in host_fed]
                of_kind.setdefault(key, []).append(np.asarray(control["seconds"]))
    most = max(repeats.values(), default=1)
    once = tuple(sorted(k for k, n in repeats.items() if n == 1 < most))
    device, host = (_copy_changes(list(copies[fed].values())) for fed in (False, True))
    return Steadiness(most, device, host, once)


def _copy_changes(copies: Sequence[Sequence[Floats]]) -> CopyChanges:
    """What changed; of each copy the seconds in each repeat."""
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
    """How much faster one is than the other."""
    return float(max(a, b) / min(a, b) - 1.0)


def _typical(changes: Sequence[float]) -> tuple[float, float] | None:
    return (float(np.median(changes)), float(max(changes))) if changes else None


def dataset_provenance(dataset: Path) -> list[dict[str, Any]]:
    """Provenance of every shard in a dataset, with ``clocks_seen`` in place of the readings."""
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
