"""Change points of series, found by the program ``otava`` in an environment of its own.

Apache Otava 0.8 (E-divisive means with a t test instead of permutations; Fleming et al., ICPE 2023,
doi 10.1145/3578244.3583719) asks for other versions of NumPy and SciPy than this library has.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .errors import CompareError

# It leaves out what is younger than now or older than a year, so points have made-up days.
_FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)
_SINCE = "1999-01-01"
_ALL = "all"
# Its options that are taken from the environment where a CI means something else by them.
_NOT_MEANT = ("BRANCH",)


@dataclass(frozen=True)
class SeriesChange:
    """From place `index` of a series on its mean is `after`; since the point before, `before`."""

    index: int
    before: float
    after: float


Series = Mapping[str, Sequence[float]]


def series_changes(
    tests: Sequence[Series], delta: float, program: str
) -> list[dict[str, list[SeriesChange]]]:
    """Of each test the change points of each of its series, in order.

    All series of one test are equally long. Means that differ by less than the share `delta` are
    not told. Raises CompareError when `program` fails or answers otherwise than otava 0.8 does.
    """
    with TemporaryDirectory() as folder:
        config = _written(tests, Path(folder))
        command = [program, "analyze", _ALL, "--config-file", str(config), "--output", "json"]
        command += ["--since", _SINCE, "--magnitude", str(delta)]
        environment = {k: v for k, v in os.environ.items() if k not in _NOT_MEANT}
        try:
            done = subprocess.run(
                command, capture_output=True, encoding="utf-8", env=environment, check=False
            )
        except OSError as err:
            raise CompareError(f"'{program}' cannot be started ({err.strerror}).") from err
    try:
        answers = _answers(done.stdout)
        return [_changes(answers[_name(i)], series) for i, series in enumerate(tests)]
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        said = done.stderr.strip().splitlines()
        raise CompareError(
            f"'{program}' ended with status {done.returncode} and does not answer as otava 0.8 "
            f"does: {said[-1] if said else repr(err)}"
        ) from err


def _name(number: int) -> str:
    return f"g{number}"


def _written(tests: Sequence[Series], folder: Path) -> Path:
    """The program's configuration (JSON, which is YAML), beside a CSV file of each test."""
    described: dict[str, Any] = {}
    for number, series in enumerate(tests):
        path = folder / f"{_name(number)}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["time", *series])
            for place, values in enumerate(zip(*series.values(), strict=True)):
                day = (_FIRST_DAY + timedelta(days=place)).isoformat()
                rows.writerow([day, *(repr(float(value)) for value in values)])
        described[_name(number)] = {
            "type": "csv",
            "file": str(path),
            "time_column": "time",
            "metrics": {name: {"direction": 1} for name in series},
        }
    config = folder / "otava.yaml"
    groups = {_ALL: list(described)}
    text = json.dumps({"tests": described, "test_groups": groups})
    config.write_text(text, encoding="utf-8")
    return config


def _answers(text: str) -> dict[str, Any]:
    """By test what is printed of it: an object a line."""
    merged: dict[str, Any] = {}
    for line in text.splitlines():
        merged |= json.loads(line)
    return merged


def _changes(groups: Sequence[Any], series: Series) -> dict[str, list[SeriesChange]]:
    found: dict[str, list[SeriesChange]] = {name: [] for name in series}
    for change in (change for group in groups for change in group["changes"]):
        means = (float(change[f"mean_{when}"]) for when in ("before", "after"))
        found[change["metric"]].append(SeriesChange(int(change["index"]), *means))
    return found
