"""Timing modes: which cells they make, how they are taken, and that they never compete."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT
from fakes import INFO, FakeDevice, cell_tag, make_cells, measure_cells
from gpushmoo import ConfigError, sweep
from gpushmoo.analysis.best import Advice, advice, best_table
from gpushmoo.core.schema import Status
from gpushmoo.core.space import TIMING_MODES, USUAL, Cell, Condition, Problem
from gpushmoo.devices.cuda.timing import CudaLaunch, EventTimer
from gpushmoo.devices.opencl.backend import OpenCLLaunch
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.measuring.sample_length import MAX_ISOLATED
from gpushmoo.planning.config import load_config
from gpushmoo.planning.flow import Flow
from gpushmoo.planning.plan import run_plan
from gpushmoo.report.findings import kind_findings, of_first_kind
from gpushmoo.report.tables import Namer, first_page
from gpushmoo.storage.dataset import of_one_mode
from synthetic import write_shard
from test_advice import group

ISOLATED, STREAM = Condition("warm", "isolated"), Condition("warm", "stream")
AXES = {"block_x": [8, 16], "block_y": [4]}
COPY = {"sizes": [64], "dtypes": ["float"], "variants": ["element"], "axes": AXES}
TWO = ("batched", "isolated")


def written(path: Path, **other: Any) -> Path:
    sizes = (Problem(64, 64),)
    return write_shard(path, "copy2d_coalesced", "float", problems=sizes, axes=AXES, **other)


def test_the_usual_kind_keeps_the_keys_from_before_there_were_others() -> None:
    params = (("block_x", 32), ("block_y", 8))
    usual = Cell("copy2d_coalesced", "float", "element", Problem(1024, 1024), params, "warm")
    assert usual.key == "52bdede9e99751fc"
    of_each = [replace(usual, timing_mode=mode) for mode in TIMING_MODES]
    assert len({cell.key for cell in of_each}) == len(TIMING_MODES)
    assert len({cell.group for cell in of_each}) == len(TIMING_MODES)


def test_jobs_are_told_of_kinds_only_where_there_are_others(raw_config: dict[str, Any]) -> None:
    told = []
    for launch in ({}, {"timing_modes": ["batched"]}, {"timing_modes": [*TWO]}):
        raw_config["kernels"] = {"copy2d_coalesced": {**COPY, **launch}}
        config = load_config(raw_config, ROOT)
        [[plan]] = [plans.values() for plans in run_plan(config, "opencl", "auto").sweeps.values()]
        told.append(plan.job.plain)
    assert told[0] == told[1]
    assert told[2] == {**told[0], "timing_modes": [*TWO]}


@pytest.mark.parametrize(
    ("kernel", "launch", "backend", "words"),
    [
        (
            "copy2d_coalesced",
            ["alone"],
            "auto",
            "timing_modes.0' is 'alone'; allowed are batched, isolated",
        ),
        ("copy2d_coalesced", [], "auto", "timing_modes' is empty"),
        ("copy2d_coalesced", ["isolated", "graph"], "opencl", "opencl has no timing mode"),
        ("dot_host", ["isolated"], "auto", "must be [batched] of a kernel that the host"),
    ],
)
def test_a_mistaken_kind_is_refused_in_one_sentence(
    raw_config: dict[str, Any], kernel: str, launch: list[str], backend: str, words: str
) -> None:
    raw_config |= {"kernels": {kernel: {"timing_modes": launch}}, "backend": backend}
    with pytest.raises(ConfigError) as caught:
        load_config(raw_config, ROOT)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_figures_show_one_kind(raw_config: dict[str, Any]) -> None:
    names = []
    for launch in (["batched"], [*reversed(TWO)], ["isolated"]):
        raw_config["kernels"] = {"copy2d_coalesced": {**COPY, "timing_modes": launch}}
        flow = Flow(raw_config, ask_device=False)
        [figure] = flow.figures
        job = flow.figure_job(type("Wildcards", (), {"figure": figure.name}))
        assert job.named == (["timing_mode"] if len(launch) > 1 else [])
        assert job.where["timing_mode"] == next(k for k in TIMING_MODES if k in launch)
        names.append(figure.name)
    assert names[0] == names[1]
    assert names[2] == f"{names[0]}-isolated"


def test_isolated_launches_are_sampled_apart_with_a_copy_of_their_own() -> None:
    cells = make_cells(cache_states=("warm", "flushed"), timing_modes=TWO)
    device = FakeDevice(launch_s=4e-6)
    outcome = measure_cells(device, cells)
    assert {r.status for r in outcome.runs} == {Status.OK}
    launches = {"batched": 16, "isolated": MAX_ISOLATED}
    for run in outcome.runs:
        few = run.cell.cache_state == "flushed"
        assert run.launches == (4 if few else launches[run.cell.timing_mode])
    # One that is timed to admit it, one to warm up and six that count.
    alone = [c for c in cells if c.timing_mode == "isolated"]
    assert sum(e[0] == "isolated" for e in device.log) == 8 * len(alone)
    assert {e[1] for e in device.log if e[0] == "isolated"} == {cell_tag(c) for c in alone}
    met = {
        (p, Condition(s, k))
        for p in {c.problem for c in cells}
        for s in ("warm", "flushed")
        for k in TWO
    }
    assert outcome.result.copies.keys() == met


class _Event:
    """Logs where it stands; never late."""

    def __init__(self, log: list[str]) -> None:
        self._log, self.done = log, False

    def record(self, stream: Any) -> None:
        self._log.append("event")


class _Stream:
    """A stream that logs, and a graph of what is queued while it captures."""

    def __init__(self, log: list[str]) -> None:
        self.log, self._before = log, 0

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def synchronize(self) -> None:
        self.log.append("wait")

    def begin_capture(self) -> None:
        self._before = len(self.log)

    def end_capture(self) -> Any:
        held = self.log[self._before :]
        del self.log[self._before :]

        def launch(stream: Any) -> None:
            self.log.append(f"graph of {held.count('launch')}")

        methods = {"launch": launch, "upload": lambda stream: None}
        return type("Graph", (), {name: staticmethod(m) for name, m in methods.items()})


class _Timer(EventTimer):
    def flush(self) -> None:
        self.stream.log.append("flush")


def timed(launches: int, met: Condition) -> list[str]:
    """What the CUDA backend asks of its stream for a second sample; the first captures graphs."""
    log: list[str] = []
    stream = _Stream(log)
    cuda = {"Event": lambda: _Event(log), "get_elapsed_time": lambda start, stop: 1.0}
    cupy = type(
        "Cupy", (), {"cuda": type("Cuda", (), {n: staticmethod(f) for n, f in cuda.items()})}
    )
    timer = _Timer(cupy, lambda *_: log.append("spin"), stream, INFO, lambda: stream)
    subject = CudaLaunch(timer, lambda: log.append("launch"))
    subject.sample(launches, met)
    log.clear()
    between = 1 if met.flushed or met.timing_mode == "isolated" else launches
    assert subject.sample(launches, met) == pytest.approx(1e-3 / between)
    return log


ALONE = ["wait", "spin", "event", "launch", "event", "wait"]


@pytest.mark.parametrize(
    ("launches", "met", "asked"),
    [
        (1, USUAL, ["spin", "event", "launch", "event", "wait"]),
        (3, USUAL, ["spin", "launch", "event", "graph of 3", "event", "wait"]),
        (2, Condition("flushed"), ["spin", *["flush", "event", "launch", "event"] * 2, "wait"]),
        (1, ISOLATED, ALONE),
        (2, ISOLATED, ["launch", *ALONE] * 2),
        (2, Condition("flushed", "isolated"), ["flush", *ALONE] * 2),
        (3, STREAM, ["spin", "launch", "event", *["launch"] * 3, "event", "wait"]),
        (4, Condition("warm", "graph"), ["spin", "launch", "event", "graph of 4", "event", "wait"]),
        (1, Condition("warm", "graph"), ["spin", "event", "graph of 1", "event", "wait"]),
        (
            1,
            Condition("flushed", "graph"),
            ["spin", "flush", "event", "graph of 1", "event", "wait"],
        ),
    ],
)
def test_cuda_times_each_kind(launches: int, met: Condition, asked: list[str]) -> None:
    assert timed(launches, met) == asked


@pytest.mark.parametrize(
    ("met", "asked"),
    [
        # One before the row.
        (USUAL, ["launch"] * 3 + ["wait"]),
        (Condition("flushed"), ["flush", "launch", "wait"] * 2),
        (ISOLATED, ["launch", "wait"] * 4),
    ],
)
def test_opencl_times_each_kind(met: Condition, asked: list[str]) -> None:
    log: list[str] = []
    device: Any = SimpleNamespace(translated=nullcontext, flush=lambda: log.append("flush"))
    profile = SimpleNamespace(start=1000, end=4000)
    event = SimpleNamespace(profile=profile, wait=lambda: log.append("wait"))
    assert OpenCLLaunch(device, lambda: log.append("launch") or event).sample(2, met) == 3e-6
    assert log == asked


def test_an_isolated_sweep_on_this_machine_is_verified_and_never_competes(
    opencl_choice: DeviceChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(opencl_choice.cache))
    place = {"backend": opencl_choice.backend, "opencl_runtime": opencl_choice.runtime}
    few = {"min_samples": 6, "max_samples": 6, "warmup": 0, "progress": False}
    kernel = ROOT / "kernels/copy2d_coalesced"
    found = sweep(kernel, **COPY, timing_modes=[*TWO], **few, **place)
    assert found.statuses == {"ok": 4}
    assert (found.cells["verified_words"] == 64 * 64).all()
    assert (found.cells["wrong_words"] == 0).all()
    counts = found.best.drop_duplicates("timing_mode").set_index("timing_mode")["candidates"]
    assert counts.to_dict() == dict.fromkeys(TWO, 2)
    assert found.cells.groupby("timing_mode")["memcpy_gbs"].nunique().tolist() == [1, 1]
    with pytest.raises(ConfigError, match="opencl has no timing mode 'stream'; it has: b"):
        sweep(kernel, **COPY, timing_modes="stream", **few, **place)


def several() -> tuple[pd.DataFrame, list[Advice]]:
    """Cells of which another block is the fastest when isolated."""
    times = {(32, 8): 1.0, (16, 16): 1.2, (64, 4): 1.1}
    alone = {(32, 8): 1.5, (16, 16): 1.3, (64, 4): 1.4}
    cells = pd.concat([group(times), group(alone, timing_mode="isolated")], ignore_index=True)
    return cells, advice(cells, best_table(cells).to_pandas())


def test_each_kind_has_its_launch_and_what_loses_in_another_is_a_finding() -> None:
    cells, told = several()
    page = first_page(told, cells, False)
    assert [(k["name"], [r["use"] for r in k["rows"]]) for k in page["kernels"]] == [
        ("k, batched", ["32 × 8"]),
        ("k, isolated", ["16 × 16"]),
    ]
    usual = of_one_mode(cells)
    one = advice(usual, best_table(usual).to_pandas())
    assert [k["name"] for k in first_page(one, usual, False)["kernels"]] == ["k"]
    names = Namer(cells)
    assert names.size(told[1].group) == "8192², isolated"
    assert Namer(usual).size(told[0].group) == "8192²"
    cells, told = several()
    [first] = of_first_kind(told)
    assert first.group["timing_mode"] == "batched"
    [finding] = kind_findings(told, cells)
    assert finding.worth == pytest.approx(1.5 / 1.3 - 1)
    assert "32 × 8 is fastest batched, but 15 % slower than 16 × 16 isolated" in finding.sentence
    assert kind_findings([first], cells) == []
    # What cannot be told apart is no finding.
    wide = cells.assign(group_low_s=0.5 * cells["median_s"])
    assert kind_findings(told, wide) == []
