"""Data that are made before the device is free."""

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
from gpushmoo.measuring import host_data
from gpushmoo.measuring.host_data import HostData
from gpushmoo.measuring.worker import _Shard
from gpushmoo.workloads.loader import load_kernel
from jobs import assignment_of

PROBLEMS = [Problem(8, 8), Problem(16, 16), Problem(32, 32)]


class _Counting:
    """A workload that counts how often it makes the inputs of each problem."""

    def __init__(self) -> None:
        self.made = Counter[Problem]()
        self.fails, self.expected = False, 0

    def footprint(self, problem: Problem, dtype: str) -> int:
        return problem.height * problem.width

    def inputs(self, problem: Problem, dtype: str, rng: np.random.Generator) -> dict[str, Any]:
        if self.fails:
            raise WorkloadError("no inputs")
        self.made[problem] += 1
        return {"src": rng.random(problem.height)}

    def result_of(self, variant: str) -> str:
        return "twice" if variant in "ab" else "thrice"

    def outputs(self, inputs: dict[str, Any], variant: str) -> dict[str, Any]:
        self.expected += 1
        return {"dst": (2 if variant in "ab" else 3) * inputs["src"]}


def test_inputs_made_ahead_are_those_of_every_shard_and_are_given_once() -> None:
    workload: Any = _Counting()
    usual = HostData(workload, "float", 7).inputs(PROBLEMS[0])["src"]
    data = HostData(workload, "float", 7)
    data.make_ahead(PROBLEMS, ["a", "b", "c"])
    assert workload.made == {PROBLEMS[0]: 2, PROBLEMS[1]: 1, PROBLEMS[2]: 1}
    # Two of three variants have one result.
    assert workload.expected == 2 * len(PROBLEMS)
    expected = data.result(PROBLEMS[0], "b")
    assert expected is not None
    assert np.array_equal(expected["dst"], 2 * usual)
    assert data.result(PROBLEMS[0], "a") is None
    # The inputs stay for the other result.
    assert data.inputs(PROBLEMS[0]) is data.inputs(PROBLEMS[0])
    assert data.result(PROBLEMS[0], "c") is not None
    for times in (2, 3):
        assert np.array_equal(data.inputs(PROBLEMS[0])["src"], usual)
        assert workload.made[PROBLEMS[0]] == times


def test_no_more_is_made_ahead_than_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_data, "AHEAD_BYTES", 8 * 8 + 16 * 16)
    workload: Any = _Counting()
    HostData(workload, "float", 7).make_ahead(PROBLEMS, ["a", "b", "c"])
    assert workload.made == {PROBLEMS[0]: 1, PROBLEMS[1]: 1}


def test_an_error_waits_until_the_inputs_are_needed() -> None:
    workload: Any = _Counting()
    workload.fails = True
    data = HostData(workload, "float", 7)
    data.make_ahead(PROBLEMS, ["a", "b", "c"])
    with pytest.raises(WorkloadError, match="no inputs"):
        data.inputs(PROBLEMS[0])


@pytest.mark.parametrize(
    ("kernel", "kind", "made"),
    [("copy2d_coalesced", "gpu", 2), ("copy2d_coalesced", "cpu", 0), ("dot_streamed", "gpu", 0)],
)
def test_a_job_for_a_gpu_makes_its_inputs_ahead_unless_cells_need_the_host(
    kernel: str, kind: Any, made: int, tmp_path: Path
) -> None:
    folder = load_kernel(ROOT / "kernels" / kernel)
    axes = {"block_x": 4, "block_y": 4}
    job = assignment_of(tmp_path, sizes=[[8, 8], [16, 16]], variants=["element"], axes=axes)
    data = HostData(folder.workload, "float", 7)
    _Shard(job, folder, data).make_ahead(replace(INFO, kind=kind))
    assert len(data._inputs) == made
