"""Outputs beside the poison: an element that may be right with its bits needs another one."""

from typing import Any

import numpy as np
import pytest
from fakes import FakeDevice
from gpushmoo.measuring.outputs import CheckedOutput
from gpushmoo.workloads.tolerances import EXACT, Limit

NAN = np.array([1.0, np.nan], np.float32)


def output(expected: Any, limit: Limit = EXACT, content: Any = None) -> CheckedOutput:
    return CheckedOutput.upload(FakeDevice(), "y", np.asarray(expected), limit, None, content)


@pytest.mark.parametrize(
    ("expected", "limit", "twice"),
    [
        (np.array([5, 2**32 - 1], np.uint32), EXACT, True),
        (np.array([5, 2**32 - 2], np.uint32), EXACT, False),
        (np.array([-1, 3], np.int32), EXACT, True),
        (np.array([[7, 255, 0, 0]], np.uint8), EXACT, True),
        (np.array([-1, -1], np.int64), EXACT, True),
        (np.array([1, 2], np.int64), EXACT, False),
        # The poison is NaN in a float.
        (np.array([1.0, -1.0], np.float32), EXACT, False),
        (NAN, EXACT, True),
        (NAN[:1], EXACT, False),
        # A limit reaches it, or does not.
        (np.array([-2, 3], np.int32), Limit(atol=1.0), True),
        (np.array([-3, 3], np.int32), Limit(atol=1.0), False),
    ],
)
def test_a_right_element_that_looks_like_poison_is_tried_with_another(
    expected: Any, limit: Limit, twice: bool
) -> None:
    assert output(expected, limit).twice is twice
    # An output that a launch finds as it was has no poison.
    assert not output(expected, limit, content=object()).twice


@pytest.mark.parametrize("scalar", [np.uint8, np.uint16, np.int32, np.float32, np.float64])
def test_an_element_is_poison_if_all_of_its_bytes_are(scalar: Any) -> None:
    one = output(np.ones(4, scalar))
    width = np.dtype(scalar).itemsize
    assert one.is_poison(int.from_bytes(b"\xff" * width), 0xFF)
    assert one.is_poison(0, 0)
    assert not one.is_poison(int.from_bytes(b"\xff" * width), 0)
    assert not one.is_poison(int.from_bytes(b"\xff" * (width - 1) + b"\xfe"), 0xFF)
    assert one.words == -(-4 * width // 4)
