"""What a user's methods may return, to the edge of it; two kernels in one process."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from gpushmoo.workloads import user_code
from gpushmoo.workloads.loader import load_kernel

NAN = np.array([1.0, np.nan], np.float32)


@pytest.mark.parametrize(
    ("fault", "fit", "unfit"),
    [
        (user_code.clause_fault, [None, "a reason", ""], [True, 3, b"x"]),
        (user_code.bytes_fault, [0, 7, np.int64(3)], [-1, 1.5, True, None, "8"]),
        (user_code.moved_fault, [(0, 0), (4, np.int32(8))], [(-1, 0), (0, -1), (1,), (1, 2, 3), 8]),
        (
            user_code.work_fault,
            [None, 1, 0.25, 1e300, np.float32(0.5), np.int64(2)],
            [0, -1.0, float("inf"), float("nan"), True, "1"],
        ),
        (user_code.array_fault, [np.zeros(0), np.ones(3, np.uint8)], [[1.0], np.array([None])]),
        (
            user_code.arrays_fault,
            [{}, {"a": np.ones(2)}],
            [np.ones(2), {"a": np.ones(2), "b": [1.0]}],
        ),
        (
            user_code.expected_fault,
            [np.zeros((0, 3)), np.ones(3, np.int32), np.array([np.inf, -0.0])],
            [NAN, NAN.reshape(1, 2), np.float64([np.nan]), [1.0]],
        ),
    ],
)
def test_what_a_method_may_return(
    fault: Callable[[Any], str | None], fit: list[Any], unfit: list[Any]
) -> None:
    assert [value for value in fit if fault(value) is not None] == []
    assert [value for value in unfit if fault(value) is None] == []


def test_a_fault_names_the_place_or_the_array() -> None:
    assert "[1, 0]" in str(user_code.expected_fault(np.array([[1.0], [np.nan]])))
    assert "'b'" in str(user_code.arrays_fault({"a": np.ones(2), "b": 3}))


# Two kernels as they are often written: each puts its folder on the path and has a helper. The data
# class is made when a method runs, which looks up its module.
WORKLOAD = """
from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import helper
import numpy as np
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Launch

class Mine(CopyWorkload):
    name, title, pattern, dtypes, variants = "mine", "Mine", "a copy", ("float",), ("v",)
    axes = {"block_x": [32]}
    told = helper.TOLD

    def launch(self, cell):
        return Launch("v", (1, 1, 1), (32, 1, 1), (BufferRef("dst"), BufferRef("src")), 1)

    def made_late(self):
        @dataclass
        class Late:
            x: int

        return Late(3).x

WORKLOAD = Mine()
"""


def test_two_kernels_each_have_their_helper_and_stay_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(user_code, "_loaded", set())
    loaded = []
    with mock.patch.dict(sys.modules):
        for name in ("first", "second"):
            folder = tmp_path / name / name
            folder.mkdir(parents=True)
            (folder / "helper.py").write_text(f"TOLD = '{name}'\n")
            (folder / "workload.py").write_text(WORKLOAD)
            loaded.append(load_kernel(folder).workload)
        assert [workload.told for workload in loaded] == ["first", "second"]
        assert [workload.made_late() for workload in loaded] == [3, 3]
    assert str(tmp_path / "first" / "first") not in sys.path
