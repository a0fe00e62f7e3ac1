"""What keeps Snakemake from idling."""

from types import SimpleNamespace

import pytest
from gpushmoo.planning.snakemake_hooks import start_jobs_when_ready
from snakemake.scheduling.job_scheduler import JobRateLimiter
from snakemake.settings.types import MaxJobsPerTimespan


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
