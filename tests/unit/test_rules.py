"""Which rules have benchmark files, and what keeps Snakemake from idling."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from gpushmoo.core.paths import ROOT
from gpushmoo.planning.snakemake_hooks import start_jobs_when_ready
from snakemake.scheduling.job_scheduler import JobRateLimiter
from snakemake.settings.types import MaxJobsPerTimespan

# Rules whose jobs measure: Snakemake would look at their memory twice a second.
MEASURING = {"measure", "repeat", "counters", "energy", "study_dot"}


def test_no_rule_that_measures_has_a_benchmark_file() -> None:
    files = [ROOT / "Snakefile", *ROOT.glob("workflow/rules/*.smk")]
    measured = {}
    for path in [*files, *ROOT.glob("reports/chapters/*/rules.smk")]:
        parts = re.split(
            r"^ *(?:use )?rule (?:\w+ as )?(\w+).*:$", path.read_text("utf-8"), flags=re.M
        )
        for rule, body in zip(parts[1::2], parts[2::2], strict=True):
            if rule in MEASURING:
                measured[rule] = "benchmark:\n" in body
    assert measured == dict.fromkeys(MEASURING, False)


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
