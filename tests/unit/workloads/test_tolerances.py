"""Elements within a limit: the device and the host decide as NumPy's formula in doubles does."""

from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import Mock

import ml_dtypes
import numpy as np
import pytest
from gpushmoo.devices.base import Device
from gpushmoo.devices.memory import Deviation
from gpushmoo.measuring.outputs import CheckedOutput
from gpushmoo.workloads.tolerances import Limit

SMALL = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
WHOLE = [np.uint8, np.int8, np.int16, np.uint32, np.int32, np.int64, np.uint64]
# Those of the second have bounds as large as the values, where a fused multiply-add would decide
# otherwise at an edge.
BOUNDS = [{"rtol": 1e-5}, {"rtol": 0.75, "atol": 0.1}, {"atol": 0.25}, {"rtol": 0.125, "atol": 2}]
HUGE = [{"rtol": 1e300}, {"rtol": 2.0, "atol": 1e308}, {"atol": 2.0**64}]


def is_right(found: Any, expected: Any, rtol: float = 0, atol: Any = 0) -> Any:
    """By `numpy.isclose`'s formula; others than finite floats must be the same."""
    if found.dtype.kind in "iu":
        with np.errstate(over="ignore"):
            bounds = np.broadcast_to(atol, expected.shape) + rtol * abs(expected.astype(float))
        # Python compares a whole number with a float exactly.
        each = zip(found.tolist(), expected.tolist(), bounds.tolist(), strict=True)
        return np.array([abs(f - e) <= bound for f, e, bound in each])
    with np.errstate(invalid="ignore", over="ignore"):
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        near = abs(found - expected) <= atol + rtol * abs(expected)
    finite = np.isfinite(found) & np.isfinite(expected)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    return np.where(finite, near, same)


def edges(expected: Any, rtol: float = 0, atol: Any = 0) -> Iterator[tuple[Any, Any]]:
    """Values near both bounds of each, a few steps of their type inside and outside."""
    scalar = expected.dtype
    value = expected.astype(np.longdouble)
    bound = np.asarray(atol + rtol * abs(expected.astype(np.float64))).astype(np.longdouble)
    for sign in (-1, 1):
        with np.errstate(invalid="ignore", over="ignore"):
            at = value + sign * bound
        if scalar.kind in "iu":
            ends = np.iinfo(scalar)
            for step in (-2, -1, 0, 1, 2):
                yield np.clip(np.floor(at) + step, ends.min, ends.max).astype(scalar), expected
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            near = at.astype(scalar)
            low = high = near
            yield near, expected
            for _ in range(2):
                low = np.nextafter(low, scalar.type(-np.inf))
                high = np.nextafter(high, scalar.type(np.inf))
                yield low, expected
                yield high, expected


def random_values(scalar: Any, n: int = 300) -> Any:
    rng = np.random.default_rng(7)
    kind = np.dtype(scalar)
    bits = rng.integers(0, 256, n * kind.itemsize, np.uint8).view(kind)
    if kind.kind in "iu":
        ends = np.iinfo(kind)
        return np.concatenate([bits, np.array([ends.min, ends.max, 0, 1, 100], kind)])
    usual = rng.normal(size=n).astype(kind)
    few = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan]
    ends = ml_dtypes.finfo(kind)
    special = np.array([*few, ends.max, ends.min, ends.tiny, ends.smallest_subnormal], kind)
    return np.concatenate([bits, usual, special, special * usual[: special.size]])


def pairs(scalar: Any, asked: Mapping[str, Any]) -> tuple[Any, Any]:
    """Found and expected values, flat: those at edges, random ones, and special against special."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = random_values(scalar)
    last = values[-16:]
    both = [
        *edges(values, **asked),
        (values, np.roll(values, 1)),
        (np.repeat(last, last.size), np.tile(last, last.size)),
    ]
    found, expected = (np.concatenate(side) for side in zip(*both, strict=True))
    return found, expected


def counted(device: Device, found: Any, expected: Any, limit: Limit) -> Deviation:
    output = CheckedOutput.upload(device, "y", expected, limit, device.upload(found), None)
    return device.compare(output.on_device)


def agree(device: Device, found: Any, expected: Any, right: Any, limit: Limit) -> None:
    """Assert that the host agrees on each element, and the device on right and wrong ones."""
    wrong, share = limit.judged(found, expected)
    assert np.array_equal(~wrong, right)
    # Apart, since two wrong decisions could give the same number.
    for some in (right, ~right):
        if not some.any():
            continue
        deviation = counted(device, found[some], expected[some], limit)
        assert deviation.wrong == (0 if some is right else some.sum())
        worst = float(np.fmax.reduce(share[some], initial=0))
        with np.errstate(over="ignore"):
            assert deviation.worst == pytest.approx(float(np.float32(worst)), rel=1e-6)


@pytest.mark.parametrize("asked", [*BOUNDS, *HUGE], ids=str)
@pytest.mark.parametrize("scalar", [np.float32, np.float64, *SMALL, *WHOLE])
def test_device_and_host_decide_by_numpys_formula(
    scalar: Any, asked: dict[str, Any], device: Device
) -> None:
    found, expected = pairs(scalar, asked)
    right = is_right(found, expected, **asked)
    assert right.any()
    agree(device, found, expected, right, Limit(**asked))


@pytest.mark.parametrize("scalar", SMALL)
@pytest.mark.parametrize("asked", BOUNDS, ids=str)
def test_all_values_of_small_floats_are_decided_by_numpys_formula(
    scalar: Any, asked: dict[str, Any], device: Device
) -> None:
    kind = np.dtype(scalar)
    every = np.arange(2 ** (8 * kind.itemsize)).astype(f"uint{8 * kind.itemsize}").view(kind)
    some = np.array([0, 0.5, -1, 100, np.inf, np.nan], kind)
    found, expected = np.tile(every, some.size), np.repeat(some, every.size)
    agree(device, found, expected, is_right(found, expected, **asked), Limit(**asked))


def place(values: Any) -> list[int]:
    """The place of each among the values of its type, both zeros at 0."""
    kind = values.dtype
    bits = values.view(f"uint{8 * kind.itemsize}").tolist()
    if kind.kind in "iu":
        return values.tolist()
    sign = 1 << (8 * kind.itemsize - 1)
    return [-(one - sign) if one & sign else one for one in bits]


@pytest.mark.parametrize("ulp", [0, 1, 3, 2**70])
@pytest.mark.parametrize("scalar", [np.float32, np.float64, *SMALL, *WHOLE])
def test_ulp_counts_the_values_of_a_type(scalar: Any, ulp: int, device: Device) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        values = random_values(scalar)
    found, expected = pairs(scalar, {})
    if values.dtype.kind not in "iu":
        bits, kind = values.view(f"uint{8 * values.dtype.itemsize}"), values.dtype
        moved = [(bits + np.int8(n).astype(bits.dtype)).view(kind) for n in range(-4, 5)]
        found = np.concatenate([found, *moved])
        expected = np.concatenate([expected, *[values] * len(moved)])
    near = [abs(a - b) <= ulp for a, b in zip(place(found), place(expected), strict=True)]
    if values.dtype.kind in "iu":
        right = np.array(near)
    else:
        with np.errstate(invalid="ignore"):
            one, other = found.astype(np.float64), expected.astype(np.float64)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        right = np.where(np.isfinite(one) & np.isfinite(other), near, same)
    agree(device, found, expected, right, Limit(ulp=ulp))


@pytest.mark.parametrize("scalar", [np.float32, np.float16, np.int64])
def test_each_element_may_have_a_bound(scalar: Any, device: Device) -> None:
    found, expected = pairs(scalar, {"atol": 3})
    atol = np.resize([0.0, 3.0, np.inf, 2.5], found.size)
    right = is_right(found, expected, 0.0, atol)
    host, _ = Limit(atol=atol).judged(found, expected)
    assert np.array_equal(~host, right)
    # Later elements find their own bounds.
    part, _ = Limit(atol=atol).judged(found[5:9], expected[5:9], 5)
    assert np.array_equal(part, ~right[5:9])
    for some in (right, ~right):
        deviation = counted(device, found[some], expected[some], Limit(atol=atol[some]))
        assert deviation.wrong == (0 if some is right else some.sum())


def test_bounds_are_those_of_an_outputs_shape(device: Device) -> None:
    expected, atol = np.zeros((3, 4), np.float32), np.array([1.0, 2.0, 3.0, 4.0])
    found = np.tile(np.array([1, 2, 3, 4.5], np.float32), (3, 1))
    assert counted(device, found, expected, Limit(atol=atol)).wrong == 3


@pytest.fixture
def no_doubles(opencl_device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device whose comparisons of values are the host's, of 64 elements at a time."""
    monkeypatch.setattr(opencl_device.limits, "has_doubles", False)
    monkeypatch.setattr("gpushmoo.devices.base.HOST_PART", 64)
    return opencl_device


@pytest.mark.parametrize("scalar", [np.float32, np.float16, np.int64])
def test_a_device_without_doubles_finds_the_same(
    scalar: Any, no_doubles: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(no_doubles.limits, "queue", Mock(side_effect=AssertionError))
    found, expected = pairs(scalar, {"atol": 3})
    # No part begins where these begin again.
    atol = np.resize([1.0, 3.0, np.inf, 2.5, 7.0], found.size)
    right = is_right(found, expected, 0.0, atol)
    assert counted(no_doubles, found, expected, Limit(atol=atol)).wrong == (~right).sum()


def test_without_doubles_the_worst_error_is_that_of_all_parts(no_doubles: Device) -> None:
    found, expected = np.zeros(300, np.float32), np.zeros(300, np.float32)
    found[[10, 100, 299]] = 1, 5, 3
    assert counted(no_doubles, found, expected, Limit(atol=2.0)) == Deviation(2, 2.5)


def test_without_doubles_the_device_counts_ulp(no_doubles: Device) -> None:
    one = np.ones(300, np.float32)
    found = np.nextafter(one, np.float32(2))
    assert not no_doubles.limits.judges(Limit(rtol=0.1))
    assert no_doubles.limits.judges(Limit(ulp=1))
    assert counted(no_doubles, found, one, Limit(ulp=1)) == Deviation(0, 1.0)


def test_the_first_wrong_element_is_found_in_a_later_part(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpushmoo.measuring.outputs.HOST_PART", 64)
    expected, atol = np.zeros((10, 30), np.float32), np.ones((10, 30))
    found = expected.copy()
    # Right by its own bound, as the next one is by that of the first part.
    found[4, 2], atol[4, 2] = 5, 6
    found[5, 1], atol[5, 1] = 0.75, 0.5
    limit, buffer = Limit(atol=atol), device.upload(found)
    wrong = CheckedOutput.upload(device, "y", expected, limit, buffer, None).first(device)
    assert wrong is not None
    assert wrong.place == 151
    assert "[5, 1]" in wrong.said
