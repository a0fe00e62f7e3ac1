"""The table of each rule's seconds at the end of a run, and what keeps Snakemake from idling."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpushmoo.core.paths import ROOT
from gpushmoo.planning.rule_seconds import (
    MOST_LINES,
    RuleSeconds,
    benchmark_seconds,
    seconds_by_rule,
    seconds_table,
)
from gpushmoo.planning.snakemake_hooks import start_jobs_when_ready
from snakemake.scheduling.job_scheduler import JobRateLimiter
from snakemake.settings.types import MaxJobsPerTimespan

# Rules whose jobs measure: Snakemake would look at their memory twice a second.
MEASURING = {"measure", "repeat", "counters", "energy", "timeline", "errors", "rivals"}


def test_a_benchmark_file_tells_its_jobs_seconds(tmp_path: Path) -> None:
    path = tmp_path / "figure.tsv"
    path.write_text("s\th:m:s\tmax_rss\tcpu_time\n1.2543\t0:00:01\tNA\tNA\n")
    assert benchmark_seconds(path) == 1.2543


@pytest.mark.parametrize(
    "text", ["", "h:m:s\n0:00:01\n", "s\th:m:s\n", "s\tm\nmuch\t1\n", "s\n\0\n"]
)
def test_a_damaged_benchmark_file_is_no_number_that_misleads(tmp_path: Path, text: str) -> None:
    path = tmp_path / "figure.tsv"
    path.write_text(text)
    assert benchmark_seconds(path) is None
    assert benchmark_seconds(tmp_path / "none.tsv") is None


def test_rules_are_sorted_by_what_all_their_jobs_take() -> None:
    jobs = [("best", 2.0), ("figure", 1.5), ("lost", None), ("figure", 1.0)]
    assert seconds_by_rule(jobs) == [
        RuleSeconds("figure", 2, 2.5, 1.5),
        RuleSeconds("best", 1, 2.0, 2.0),
    ]


def test_the_table_is_short_and_leaves_no_second_out() -> None:
    rules = [RuleSeconds(f"rule{n}", 2, 100.0 - n, 50.0 - n) for n in range(MOST_LINES + 5)]
    lines = seconds_table(rules, 300.0).splitlines()
    assert lines[0].startswith("gpushmoo: 300 s")
    assert len(lines) == 2 + MOST_LINES + 1
    assert lines[2].split() == ["rule0", "2", "100.0", "50.0"]
    assert lines[-1].split() == ["5", "others", "10", "440.0", "40.0"]
    assert "others" not in seconds_table(rules[: MOST_LINES + 1], 300.0)


def test_every_rule_with_a_log_has_a_benchmark_file_but_those_that_measure() -> None:
    files = [ROOT / "Snakefile", *ROOT.glob("workflow/rules/*.smk")]
    lacking, measured = set(), set()
    for path in [*files, *ROOT.glob("reports/chapters/*/rules.smk")]:
        parts = re.split(
            r"^ *(?:use )?rule (?:\w+ as )?(\w+).*:$", path.read_text("utf-8"), flags=re.M
        )
        for rule, body in zip(parts[1::2], parts[2::2], strict=True):
            measured |= {rule} & MEASURING
            if "log:\n" in body and ("benchmark:\n" in body) == (rule in MEASURING):
                lacking.add(rule)
    assert not lacking
    assert measured == MEASURING


@pytest.mark.parametrize(
    ("jobs", "per_s", "nodes", "stays"),
    [(100, 1, None, False), (100, 1, 8, True), (20, 1, None, True), (100, 60, None, True)],
)
def test_snakemakes_own_limit_on_starts_is_lifted_on_this_host_alone(
    jobs: int, per_s: int, nodes: int | None, stays: bool
) -> None:
    scheduler = SimpleNamespace(
        job_rate_limiter=JobRateLimiter(MaxJobsPerTimespan(jobs, f"{per_s}s"))
    )
    settings = SimpleNamespace(nodes=nodes)
    start_jobs_when_ready(SimpleNamespace(scheduler=scheduler, resource_settings=settings))
    assert (scheduler.job_rate_limiter is not None) == stays
