"""What may stand on the terminal of a run: Snakemake's own lines and sentences of gpushmoo."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A failed job's log is shown between two such lines (``show-failed-logs``).
_RULER = re.compile(r"^={20,}$")
_RAW = re.compile(
    r"^Traceback \(most recent call last\)"
    r"|^  File \".*\", line \d+"
    # Also behind our name: so a job tells what nobody foresaw.
    r"|^(gpushmoo: )?[A-Za-z_.]*(Error|Exception|Interrupt|Exit)(: |$)"
)
# Snakemake's own words end so, too.
_NOT_RAW = re.compile(r"^(WorkflowError|CreateRuleException|RuleException|LockException):$")
# Ours: sentences and progress.
_OURS = (
    r"gpushmoo: .+",
    r"shard \d+/\d+ .+",
    r"  .+ \d+ of \d+ tied(: no difference shown)?",
)
# Snakemake's, and of the shell that it starts.
_SNAKEMAKES = (
    r"",
    r"Using workflow specific profile .*",
    r"Config file .* is extended by additional config .*",
    r"Assuming unrestricted shared filesystem usage\.",
    r"SNAKEMAKE",
    r"=+",
    r"  [A-Z][A-Za-z0-9 ()]*: .*",
    r"host: .*",
    r"Building DAG of jobs\.\.\.",
    r"Using shell: .*",
    r"Provided (cores|resources): .*",
    r"Rules claiming more threads will be scaled down\.",
    r"Conda environments: ignored",
    r"Job stats:",
    r"job +count",
    r"[- ]+",
    r"[a-z_0-9]+ +\d+",
    r"Select jobs to execute\.\.\.",
    r"Execute \d+ jobs\.\.\.",
    r"\[\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}\]",
    r"Finished jobid: .*",
    r"\d+ of \d+ steps \([\d.]+%\) done",
    r"Complete log\(?s?\)?.*",
    r"Elapsed time: .*",
    r"Unlocking working directory\.",
    r"Unlocked working directory\.",
    r"Nothing to be done \(all requested files are present and up to date\)\.",
    r"Removing output files of failed job .*",
    r"Removing incomplete .*",
    r"\S+(, \S+)*",  # the files that it removes, one line
    r"Error in rule \w+:",
    r"    \w[\w ]*: .*",
    r"    \(.*\)",
    r"RuleException:",
    r"CalledProcessError in file .*",
    r"Command .* (returned non-zero exit status \d+|died with <Signals\.SIG\w+: \d+>)\.",
    r"Logfile .*:?",
    r"Exiting because a job execution failed\. .*",
    r"Job failed, going on with independent jobs\.",
    r"At least one job did not complete successfully\.",
    r"WorkflowError:",
    r"Terminating processes on user request, this might take some time\.",
    r"Will exit after finishing currently running jobs \(scheduler\)\.",
    r"Will exit after finishing currently running jobs\.",
    r"Cancelling snakemake on user request\.",
    r"Shutting down, this might take some time\.",
    r"Terminating .*",
    r"Deleting .*",
    r"IncompleteFilesException:",
    r"Incomplete files:",
    r"MissingOutputException.*",
    r"Error: Directory cannot be locked\. .*",
    r"LockException:",
    r"The following files? .*",
    r"Trying to restart job .*",
    r"Waiting at most \d+ seconds for missing files:",
    r"Storing output in storage\.",
    r"Touching output file .*",
)
_ALLOWED = re.compile("|".join(f"(?:{p})" for p in (*_OURS, *_SNAKEMAKES)))


def raw_exceptions(text: str) -> list[str]:
    """Lines that are, or belong to, an exception that nobody turned into a sentence.

    Also those of a failed job's log, which Snakemake shows.
    """
    return [line for line in text.splitlines() if _is_raw(line)]


def _is_raw(line: str) -> bool:
    return _RAW.match(line) is not None and not _NOT_RAW.match(line)


def foreign_lines(text: str) -> list[str]:
    """Lines outside of shown logs that are neither Snakemake's own nor a sentence of ours."""
    return [
        line
        for line in _outside_logs(text)
        if not _ALLOWED.fullmatch(line.rstrip()) and not _is_raw(line)
    ]


def _outside_logs(text: str) -> Iterator[str]:
    """The lines that belong neither to a shown log nor to a traceback."""
    shown = traced = False
    before = ""
    for line in text.splitlines():
        traced = line.startswith("Traceback ") or (traced and line.startswith(" "))
        if _RULER.match(line):
            shown = not shown if shown or before.startswith("Logfile ") else shown
        elif not shown and not traced:
            yield line
        before = line
