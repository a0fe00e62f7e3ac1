"""Measuring jobs for tests that do not plan a run."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpushmoo.core.measure_settings import Measure, Search
from gpushmoo.core.shard_job import ShardJob
from gpushmoo.measuring.events import Assignment, ShardResult
from gpushmoo.measuring.sampling import EVERY_CELL, Sampling, StoppingRule
from gpushmoo.search.planner import SearchSettings

JOB = ShardJob(
    folder="kernels/tiny",
    kernel_digest="0",
    dtype="float",
    variants=["a", "b"],
    sizes=[[4, 8]],
    cache_states=["warm"],
    axes={},
    shard=[0, 1],
    repeat=1,
    backend="cuda",
    device=0,
    opencl_runtime="auto",
    seed=1,
    thread_limit=None,
    measure=Measure(repeats=1, warmup=1, search=Search(mode="all")),
)


def job_of(repeats: int = 1, **changes: Any) -> ShardJob:
    """A job with these values, of so many repeats."""
    return replace(JOB, measure=replace(JOB.measure, repeats=repeats), **changes)


def assignment_of(folder: Path, repeats: int = 1, **changes: Any) -> Assignment:
    """Such a job for a measuring process."""
    return Assignment(job_of(repeats, **changes), folder, 0.0)


def sampling_of(
    rule: StoppingRule,
    search: SearchSettings = EVERY_CELL,
    warmup: int = 1,
    cell_timeout_s: float = 10.0,
    repeats: int = 1,
    launches_factor: float = 1.0,
    **changes: Any,
) -> Sampling:
    """How a job with these values samples by a rule of its own."""
    job = job_of(repeats, **changes)
    measure = replace(
        job.measure,
        warmup=warmup,
        cell_timeout_s=cell_timeout_s,
        launches_factor=launches_factor,
    )
    return Sampling(replace(job, measure=measure), rule, search)


def ended_runs(messages: Iterable[object]) -> list[Any]:
    """The cells or pairs that have ended by these messages, in order."""
    results = [message for message in messages if isinstance(message, ShardResult)]
    return [run for result in results for run in result.runs.values()]
