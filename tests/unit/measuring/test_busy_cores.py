"""Cells of a CPU whose cores others use, too: ranked by the time that their threads computed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from fakes import FOLDER, INFO, make_cells
from gpushmoo import sweep
from gpushmoo.core.run_plan import LACKING
from gpushmoo.core.schema import Status
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.measuring import verify
from gpushmoo.measuring.events import CellRun, ShardResult
from gpushmoo.measuring.shard_file import cell_table, processor_samples
from gpushmoo.report.method import waited_words
from rowed import RowDevice, measured

CELLS = make_cells(threads=(1, 2, 3), chunks=(1,), variants=("a", "b"))
# Two cores compute; samples of the device's clock wait in between.
COMPUTED_S = {1: 2.0e-3, 2: 2.2e-3, 3: 2.6e-3}


def result_of(waited_s: float) -> ShardResult[CellRun]:
    rng = np.random.default_rng(8)
    runs = {}
    for cell in CELLS:
        run = CellRun(cell, FOLDER.workload.launch(cell), launches=1)
        run.processor_s = [COMPUTED_S[cell["threads"]]] * 7
        run.samples_s = [s / 2 * rng.uniform(1.0, 3.0) for s in run.processor_s]
        run.sampled_at_s = [0.0] * 7
        run.end(Status.OK)
        runs[cell.key] = run
    return ShardResult(runs, computed_s=1.0, waited_s=waited_s)


def test_cells_are_ranked_by_what_was_computed_where_cores_lacked() -> None:
    info = replace(INFO, kind="cpu")
    quiet, busy = (
        cell_table(result_of(waited_s), FOLDER.workload, info, ["threads", "chunks"]).to_pandas()
        for waited_s in (0.05, 4.0)
    )
    assert quiet["events_s"].isna().all()
    assert all(map(len, quiet["processor_s"]))
    for variant in ("a", "b"):
        rows = busy[busy["variant"] == variant].set_index("threads")
        medians = rows["median_s"] / rows["median_s"].loc[1]
        assert medians.to_dict() == pytest.approx({1: 1.0, 2: 1.1, 3: 1.3})
        # The clock's times stay beside, and its typical time is the group's.
        clock = rows["events_s"].map(np.median)
        assert rows["median_s"].median() == pytest.approx(clock.median())
    before = quiet.set_index("cell_key")["samples_s"]
    after = busy.set_index("cell_key")["events_s"]
    assert all(list(before[key]) == list(after[key]) for key in before.index)


def test_only_cells_with_a_processor_time_of_each_sample_have_one() -> None:
    result = result_of(4.0)
    first = next(iter(result.runs.values()))
    first.processor_s.pop()
    assert processor_samples(result).keys() == result.runs.keys() - {first.cell.key}
    assert (ShardResult({}).waited_share, result.waited_share) == (0.0, 0.8)


def test_the_report_says_which_shards_lacked_cores() -> None:
    assert waited_words([{}, {"waited_share": LACKING}]) == ""
    said = waited_words([{"waited_share": 0.5}, {"waited_share": 0.6}, {}])
    assert "2 of 3 shards" in said
    assert "55 %" in said.replace("\u202f", " ").replace("\xa0", " ")


def test_a_cpu_s_samples_have_the_time_of_all_threads(
    opencl_choice: DeviceChoice, tmp_path: Path
) -> None:
    found = sweep(
        ROOT / "kernels" / "copy2d_coalesced",
        dtypes=["float"],
        sizes=[1024],
        variants=["element"],
        axes={"block_x": [32], "block_y": [4]},
        backend="opencl",
        opencl_runtime=opencl_choice.runtime,
        progress=False,
    )
    [row] = found.cells.to_dict("records")
    used, clock = np.array(row["processor_s"]), np.array(row["samples_s"])
    assert len(used) == len(clock)
    # No launch computes for longer than all cores have time for, but for the host's own part.
    cores = os.cpu_count() or 1
    assert np.median(used) > 0.0
    if row["events_s"] is None:
        assert np.median(used) < 1.5 * cores * np.median(clock) + 1e-3


def test_linux_is_asked_for_the_waits_twice_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def read(pid: int) -> dict[str, float]:
        reads.append(pid)
        return {"1": float(len(reads))}

    monkeypatch.setattr(verify, "core_waits_s", read)
    device = RowDevice(info=replace(INFO, kind="cpu"))
    result = measured(device, make_cells(threads=range(1, 101), chunks=(1,), variants=("a",)))
    [copies] = result.copies.values()
    assert reads == [os.getpid()] * 2 * len(copies)
    assert result.waited_s == len(copies)
