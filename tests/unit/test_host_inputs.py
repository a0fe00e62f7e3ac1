"""Inputs that are made before the device is free."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import INFO
from gpushmoo.core.errors import WorkloadError
from gpushmoo.core.paths import ROOT
from gpushmoo.core.space import Problem
from gpushmoo.measuring import host_inputs
from gpushmoo.measuring.events import Job
from gpushmoo.measuring.host_inputs import HostInputs
from gpushmoo.measuring.locks import quiet_host
from gpushmoo.measuring.worker import _Shard
from gpushmoo.workloads.loader import load_kernel

PROBLEMS = [Problem(8, 8), Problem(16, 16), Problem(32, 32)]


class _Counting:
    """A workload that counts how often it makes the inputs of each problem."""

    def __init__(self) -> None:
        self.made = Counter[Problem]()
        self.fails = False

    def footprint(self, problem: Problem, dtype: str) -> int:
        return problem.height * problem.width

    def inputs(self, problem: Problem, dtype: str, rng: np.random.Generator) -> dict[str, Any]:
        if self.fails:
            raise WorkloadError("no inputs")
        self.made[problem] += 1
        return {"src": rng.random(problem.height)}


def test_inputs_made_ahead_are_those_of_every_shard_and_are_given_once() -> None:
    workload: Any = _Counting()
    usual = HostInputs(workload, "float", 7).make(PROBLEMS[0])["src"]
    inputs = HostInputs(workload, "float", 7)
    inputs.make_ahead(PROBLEMS)
    assert workload.made == {PROBLEMS[0]: 2, PROBLEMS[1]: 1, PROBLEMS[2]: 1}
    for times in (2, 3):
        assert np.array_equal(inputs.make(PROBLEMS[0])["src"], usual)
        assert workload.made[PROBLEMS[0]] == times


def test_no_more_is_made_ahead_than_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_inputs, "AHEAD_BYTES", 8 * 8 + 16 * 16)
    workload: Any = _Counting()
    HostInputs(workload, "float", 7).make_ahead(PROBLEMS)
    assert workload.made == {PROBLEMS[0]: 1, PROBLEMS[1]: 1}


def test_an_error_waits_until_the_inputs_are_needed() -> None:
    workload: Any = _Counting()
    workload.fails = True
    inputs = HostInputs(workload, "float", 7)
    inputs.make_ahead(PROBLEMS)
    with pytest.raises(WorkloadError, match="no inputs"):
        inputs.make(PROBLEMS[0])


@pytest.mark.parametrize(
    ("kernel", "kind", "made"),
    [("copy2d_coalesced", "gpu", 2), ("copy2d_coalesced", "cpu", 0), ("dot_streamed", "gpu", 0)],
)
def test_a_job_for_a_gpu_makes_its_inputs_ahead_unless_cells_need_the_host(
    kernel: str, kind: Any, made: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path))
    folder = load_kernel(ROOT / "kernels" / kernel)
    params = {"dtype": "float", "sizes": [[8, 8], [16, 16]], "variants": ["element"]}
    params |= {"axes": {"block_x": 4, "block_y": 4}, "cache_states": ["warm"], "shard": [0, 1]}
    params |= {"timing_modes": ["batched"]}
    job, info = Job(params, tmp_path, 0.0), replace(INFO, kind=kind)

    def ahead() -> int:
        inputs = HostInputs(folder.workload, "float", 7)
        _Shard(job, folder, inputs).make_ahead(info)
        return len(inputs._ahead)

    assert ahead() == made
    with quiet_host():
        assert ahead() == 0
