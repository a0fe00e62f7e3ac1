"""Which runs of several hosts are held against each other, and what was recorded of three H200s."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import pytest
from gpushmoo.core.paths import ROOT


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT / "tests/benchmarks"), *sys.path])
    return import_module("between_hosts")


@pytest.mark.parametrize("counts", [[16, 12, 7], [2, 2], [3, 9], [1, 5], [4, 4, 4, 4]])
def test_no_run_stands_in_two_pairs_and_no_pair_is_of_one_host(
    between: Any, counts: list[int]
) -> None:
    hosts = [host for host, n in enumerate(counts) for _ in range(n)]
    pairs = between.places(counts)
    named = [place for first, second, _ in pairs for place in (first, second)]
    assert len(named) == len(set(named))
    assert pairs
    for first, second, (one, other) in pairs:
        assert (hosts[first], hosts[second]) == (one, other)
        assert one != other


def test_runs_of_three_devices_raise_no_alarm() -> None:
    folder = ROOT / "reports/reference/comparing"
    told = json.loads((folder / "h200-hosts.json").read_text(encoding="utf-8"))
    assert told["devices"] == 3
    assert told["same"]["alarms"]["n"] == len(told["pairs"]) == 13
    assert not any(pair["alarms"] for pair in told["pairs"])
    again = json.loads((folder / "h200-second.json").read_text(encoding="utf-8"))
    assert [again["planted"][p]["slower_cells"]["hits"] for p in ("1 %", "3 %", "10 %")] == [8] * 3
