"""Reads what compute-sanitizer wrote: its findings, counted by what was found and in which kernel.

A report begins with ``=========`` and one space; lines that belong to it are indented further.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

_LINE = re.compile(r"^=========(?P<indent>\s*)(?P<text>.*?)\s*$")
_SUMMARY = re.compile(
    r"ERROR SUMMARY: (\d+) errors?$|RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?"
)
# What is said about the run and not about a kernel.
_NOTES = re.compile(
    r"Target application|Error: |Error process|.*(not printed|were not displayed)|LEAK SUMMARY"
)
_RACE = re.compile(r"(Read|Write|Atomic) access at")
# ``at copy_exact+0x90``, older releases ``at 0x90 in copy_exact``; a source line may follow.
_KERNEL = re.compile(
    r"\bat (?:0x[0-9a-f]+ in )?(?P<kernel>[A-Za-z_][\w:<>,&* ]*?)(?:\(.*\))?(?:\+0x|$| in )"
)


@dataclass
class Finding:
    """Reports of one kind in one kernel; `kernel` is empty where the report names none.

    `example` is the first of them without the host's call stack.
    """

    what: str
    kernel: str
    count: int
    example: str


@dataclass
class Log:
    """All findings of the processes that one run started, most frequent first.

    `errors` is the sum of the tool's own summaries and `summaries` their number: a process without
    one did not come to its end. `notes` are lines about the run itself.
    """

    findings: list[Finding] = field(default_factory=list)
    errors: int = 0
    summaries: int = 0
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def read_logs(texts: Iterable[str]) -> Log:
    """What the logs, one a process, say together."""
    log, found = Log(), dict[tuple[str, str], Finding]()
    for text in texts:
        for head, *rest in _reports(text):
            summary = _SUMMARY.match(head)
            if summary is not None:
                log.summaries += 1
                log.errors += int(summary[1] or summary[2])
            elif _NOTES.match(head) and "Race reported" not in head:
                log.notes.append(head)
            elif head != "COMPUTE-SANITIZER":
                _count(found, head, rest)
    log.findings = sorted(found.values(), key=lambda f: (-f.count, f.what, f.kernel))
    return log


def _reports(text: str) -> Iterator[list[str]]:
    """The lines of each report; lines of the program itself are left out."""
    report: list[str] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or not match["text"]:
            continue
        if match["indent"] == " " and report:
            yield report
            report = []
        report.append(match["text"])
    if report:
        yield report


def _count(found: dict[tuple[str, str], Finding], head: str, rest: list[str]) -> None:
    told = [line for line in rest if "Host Frame" not in line and "host backtrace" not in line]
    lines = [head, *told]
    kernel = next((m["kernel"] for line in lines if (m := _KERNEL.search(line))), "")
    what = head
    if "Race reported" in head:
        what = "race of " + " and ".join(_RACE.findall(" ".join(lines)))
    one = found.setdefault((what, kernel), Finding(what, kernel, 0, "\n".join(lines)))
    one.count += 1
