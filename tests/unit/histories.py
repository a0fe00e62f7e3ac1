"""Runs that make a history, and a program that stands for otava."""

import stat
import sys
from pathlib import Path

from cells import Machine
from gpushmoo.comparing.runs import RunCells

# Answers as otava 0.8.0 does: for each series the one place whose means before and after it differ
# most, where they do so by more than what it is asked for and lie clear of each other.
FAKE = """
import argparse, csv, json, os, sys

parser = argparse.ArgumentParser()
for name in ("command", "group"):
    parser.add_argument(name)
for name in ("--config-file", "--output", "--since", "--magnitude"):
    parser.add_argument(name)
given = parser.parse_args()
assert (given.command, given.output) == ("analyze", "json") and "BRANCH" not in os.environ
config = json.load(open(given.config_file))
for test in config["test_groups"][given.group]:
    with open(config["tests"][test]["file"], newline="") as file:
        rows = list(csv.DictReader(file))
    points = []
    for metric in config["tests"][test]["metrics"]:
        values = [float(row[metric]) for row in rows]
        splits = []
        for i in range(1, len(values)):
            low, high = sorted((values[:i], values[i:]), key=lambda part: sum(part) / len(part))
            before, after = (sum(part) / len(part) for part in (values[:i], values[i:]))
            change = abs(after / before - 1)
            if max(low) < min(high) and change > float(given.magnitude):
                splits.append((change, i, before, after))
        if splits:
            _, i, before, after = max(splits)
            changed = {"metric": metric, "index": i, "time": 0, "forward_change_percent": "0"}
            changed |= {"mean_before": f"{before:f}", "mean_after": f"{after:f}"}
            points.append({"time": 0, "attributes": {}, "changes": [changed]})
    print(json.dumps({test: points}))
    print("INFO: Computing change points", file=sys.stderr)
"""


def program_of(source: str, path: Path) -> str:
    path.write_text(f"#!{sys.executable}\n{source}", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def otava_in(folder: Path) -> str:
    """Return the path of the program otava."""
    return program_of(FAKE, folder / "otava")


def made(
    slower: float = 0.0, drift: float = 0.0, copied: float = 1.0, since: int = 5, n: int = 8
) -> list[RunCells]:
    """Runs of which those from number `since` on have a slower variant v0 and a machine adrift."""
    machine = Machine(3, groups=3, cells=6, own=0.0005, noise=0.0005, copied=copied)
    return [
        machine.run(
            f"r{day}",
            {"v0": slower if day >= since else 0.0},
            drift=drift if day >= since else 0.0,
            day=day,
            kernel_digest="new" if day >= since else "old",
        )
        for day in range(1, n + 1)
    ]
