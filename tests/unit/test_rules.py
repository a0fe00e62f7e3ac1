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


def bodies() -> dict[str, str]:
    """The text of every rule from its own line on, by name."""
    files = [ROOT / "Snakefile", *ROOT.glob("workflow/rules/*.smk")]
    texts = (p.read_text("utf-8") for p in [*files, *ROOT.glob("reports/chapters/*/rules.smk")])
    parts = re.split(r"^(?= *(?:use )?rule )", "\n".join(texts), flags=re.MULTILINE)
    return {re.findall(r"(\w+)(?: with)?:\n", part)[0]: part.lstrip() for part in parts[1:]}


def test_no_rule_that_measures_has_a_benchmark_file_and_only_those_run_elsewhere() -> None:
    own_log = {name for name, body in bodies().items() if "    log:\n" in body}
    assert own_log == MEASURING | {"build_kernel"}
    assert [n for n in MEASURING if "    benchmark:\n" in bodies()[n]] == []
    elsewhere = {n for n, b in bodies().items() if not b.startswith("use rule stage as ")}
    elsewhere -= {n for n in elsewhere if "localrule: True\n" in bodies()[n]}
    assert elsewhere == own_log | {"stage"}


@pytest.mark.parametrize(
    ("jobs", "per_s", "nodes", "stays"),
    [(100, 1, None, False), (100, 1, 8, True), (20, 1, None, True), (100, 60, None, True)],
)
def test_snakemakes_limit_is_lifted(jobs: int, per_s: int, nodes: int | None, stays: bool) -> None:
    scheduler = SimpleNamespace(
        job_rate_limiter=JobRateLimiter(MaxJobsPerTimespan(jobs, f"{per_s}s"))
    )
    settings = SimpleNamespace(nodes=nodes)
    start_jobs_when_ready(SimpleNamespace(scheduler=scheduler, resource_settings=settings))
    assert (scheduler.job_rate_limiter is not None) == stays
