"""Runs Nsight Compute from its command line and parses its report."""

from __future__ import annotations

import csv
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.display import MOST_SENTENCE, one_line

log = logging.getLogger(__name__)

# Where its installers put it, when it is not on the PATH; of several versions the last is taken.
_PLACES = ("/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*")
# Seconds after which a run is given up.
LIMIT_S = 1800.0
# How often it is run again without the metrics that it does not know.
_RETRIES = 3

# What a unit is of the smallest one of its kind. `--print-units base` asks for these alone, but a
# version that does not heed it shall not be off by a million.
_SCALES = {
    unit: scale
    for scale, units in {
        1e3: ("Kbyte", "us", "usecond"),
        1e6: ("Mbyte", "ms", "msecond"),
        1e9: ("Gbyte", "s", "second"),
        1e12: ("Tbyte",),
    }.items()
    for unit in units
}
_RUN: dict[str, Any] = {"stdin": subprocess.DEVNULL, "encoding": "utf-8", "errors": "replace"}
_COMPLAINT = re.compile(r"^==(?:ERROR|WARNING)== *(.+)$", re.M)


class NotCountedError(Exception):
    """No counters could be read; one sentence that says why."""

    def __init__(self, reason: str) -> None:
        """`reason` ends the sentence."""
        super().__init__(f"Hardware counters were not read: {reason}")


@dataclass(frozen=True)
class CountedLaunch:
    """A launch as the profiler saw it; `values` by the metric's name, None where it has none."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    values: Mapping[str, float | None]


def find_ncu(name: str) -> str:
    """The program `name`, on the PATH or where it is usually installed. Raises NotCountedError."""
    found = shutil.which(name)
    if found is None:
        spots = (Path("/").glob(f"{place[1:]}/{name}") for place in _PLACES)
        installed = sorted((str(file) for some in spots for file in some), key=_by_version)
        found = next((file for file in reversed(installed) if os.access(file, os.X_OK)), None)
    if found is None:
        raise NotCountedError(
            f"'{name}' (Nsight Compute) is neither on the PATH nor in {' or '.join(_PLACES)}."
        )
    return found


def _by_version(path: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", path)]


def version_of(ncu: str) -> str:
    """The last line that the profiler prints for its version; "" if it prints none."""
    command = [ncu, "--version"]
    try:
        done = subprocess.run(command, **_RUN, capture_output=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return one_line((done.stdout.strip().splitlines() or [""])[-1])


def count_launches(
    ncu: str,
    command: Sequence[str],
    options: Sequence[str],
    metrics: Sequence[str],
    report: Path,
    env: Mapping[str, str],
) -> list[CountedLaunch]:
    """Run `command` under the profiler with `options`; the recorded launches, in their order.

    The profiler writes to the file `report`; the command prints where this process prints. Unknown
    metrics are left out of the launches' values. Raises NotCountedError.
    """
    wanted = list(metrics)
    for _ in range(1 + _RETRIES):
        arguments = [*options, "--metrics", ",".join(wanted), *command]
        text = _report_of(ncu, arguments, report, env)
        rows = parse_report(text)
        if rows:
            return rows
        unknown = unknown_metrics(text, wanted)
        if not unknown or len(unknown) == len(wanted):
            break
        log.warning("%s does not know: %s", ncu, ", ".join(unknown))
        wanted = [metric for metric in wanted if metric not in unknown]
    raise NotCountedError(reason_in(text))


def _report_of(ncu: str, arguments: Sequence[str], report: Path, env: Mapping[str, str]) -> str:
    report.unlink(missing_ok=True)
    options = ["--profile-from-start", "off", "--clock-control", "none"]
    options += ["--csv", "--page", "raw", "--print-units", "base", "--log-file", str(report)]
    run = [ncu, *options, *arguments]
    try:
        done = subprocess.run(run, **_RUN, env=dict(env), timeout=LIMIT_S, check=False)
    except OSError as err:
        raise NotCountedError(f"'{ncu}' does not start ({err.strerror}).") from err
    except subprocess.TimeoutExpired as err:
        raise NotCountedError(f"the profiler took longer than {LIMIT_S:.0f} s.") from err
    if not report.is_file():
        return f"==ERROR== it ended with status {done.returncode} and wrote nothing"
    return report.read_text(encoding="utf-8", errors="replace")


def parse_report(text: str) -> list[CountedLaunch]:
    """The launches in the profiler's CSV, page ``raw``; a row of units follows the header."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    units, *rows = [*csv.DictReader(lines)] or [{}]
    return [
        CountedLaunch(
            row["Kernel Name"].split("(")[0],
            _size(row["Grid Size"]),
            _size(row["Block Size"]),
            {
                name: _number(value, units[name] or "")
                for name, value in row.items()
                if name and "__" in name
            },
        )
        for row in rows
        if (row.get("ID") or "").isdigit()
    ]


def _size(text: str) -> tuple[int, ...]:
    """``(256, 1, 1)`` as numbers."""
    return tuple(int(digits) for digits in re.findall(r"\d+", text))


def _number(text: str | None, unit: str) -> float | None:
    """A value in the smallest unit of its kind; None for ``n/a``."""
    with suppress(ValueError):
        value = float((text or "").replace(",", ""))
        return value * _SCALES.get(unit, 1.0) if value == value else None
    return None


def unknown_metrics(text: str, metrics: Iterable[str]) -> list[str]:
    """The metrics that the profiler's complaints name."""
    complaints = " ".join(_COMPLAINT.findall(text))
    return [metric for metric in metrics if re.search(rf"{re.escape(metric)}(?!\w)", complaints)]


def reason_in(text: str) -> str:
    """The profiler's reason for missing counters: the end of a sentence."""
    if "ERR_NVGPUCTRPERM" in text:
        return (
            "the driver lets only the administrator read them (ERR_NVGPUCTRPERM); run as root, or "
            "load the driver with NVreg_RestrictProfilingToAdminUsers=0."
        )
    errors = re.findall(r"^==ERROR== *(.+)$", text, re.M)
    complaints = errors or _COMPLAINT.findall(text) or text.split("\n")[:1]
    complaints = [c for c in complaints if c] or ["the profiler did not say why"]
    return f"{one_line(complaints[0], MOST_SENTENCE // 2).rstrip('.')}."
