"""Planted slow-downs, and the programs of tests/gpu that measure them again and again."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import Bench
from conftest import ROOT
from gpushmoo.core.space import Cell, Problem, Version
from gpushmoo.devices.build_request import BuildRequest
from gpushmoo.devices.cuda.building import compile_version
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.storage.store import read_shard
from gpushmoo.workloads.loader import load_kernel
from test_compare_kernel_tuner import load

sys.path.append(str(ROOT / "tests" / "gpu"))
script = load("record_pairs")
judging = load("versus_planted")

FOLDERS = script.written
CPU = str(ROOT / "tests/gpu/repeated_cpu.yaml")


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted kernels of tests lie in a folder of their own."""
    monkeypatch.setattr(script, "planted_folder", lambda: tmp_path / "planted")
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path / "locks"))


def test_versions_differ_in_one_number_and_what_they_tell_does_not(tmp_path: Path) -> None:
    texts, told = {}, set()
    cell = Cell("copy_planted", "float", "plain", Problem(64, 64), (("block_x", 64),))
    for percent, folder in FOLDERS(tmp_path).items():
        files = {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}
        texts[percent] = "".join(files[name] for name in sorted(files))
        kernel = load_kernel(folder)
        launch = kernel.workload.launch(cell)
        told.add((kernel.workload.bytes_moved(cell), launch.grid, launch.block, launch.entry))
        assert launch.args[3] == percent
    assert len(told) == 1
    assert {t.replace(f"PERCENT = {p}\n", "PERCENT = 0\n") for p, t in texts.items()} == {texts[0]}


@pytest.mark.parametrize("percent", script.PERCENTS)
def test_so_many_of_a_hundred_tiles_are_done_twice_as_evenly_as_can_be(percent: int) -> None:
    """By the condition that stands in both kernels."""
    for name in ("kernel.cu", "kernel.cl"):
        text = (script.TEMPLATE / name).read_text()
        assert "if ((tile % 100) * percent % 100 < percent)" in text
    twice = [tile for tile in range(100) if tile * percent % 100 < percent]
    assert len(twice) == percent
    gaps = np.diff([*twice, *(100 + tile for tile in twice[:1])])
    assert np.ptp([*gaps, *gaps[:1]]) <= 1 if percent else not twice


@pytest.mark.parametrize("percent", [0, 10])
def test_results_are_right_whatever_is_planted(
    percent: int, opencl_choice: DeviceChoice, tmp_path: Path
) -> None:
    folder = FOLDERS(tmp_path, (percent,))[percent]
    bench = Bench(opencl_choice, folder, tmp_path)
    # 5,041 elements: the last tile is not full.
    rows = bench.measure(["plain"], threads=[64, 96, 256], sizes=[[71, 71]])
    assert rows["status"].tolist() == ["ok"] * 3


@pytest.mark.parametrize("dtype", ["float", "float4"])
def test_it_compiles_for_a_gpu_and_moves_what_it_says(dtype: str, tmp_path: Path) -> None:
    kernel = load_kernel(FOLDERS(tmp_path, (3,))[3])
    request = BuildRequest("cuda", "0", "auto", "sm_90", tmp_path / "kept", ("-use_fast_math",))
    made = compile_version(request, kernel, dtype, Version("plain"), "sm_90")
    assert made.failure is None
    assert made.options.endswith(" -use_fast_math")


def test_planted_runs_lie_among_the_others() -> None:
    order = script.order(16, 8, 23)
    names = [run for run, _ in order]
    assert len(set(names)) == len(names) == 16 + 3 * 8
    same = [i for i, name in enumerate(names) if name.startswith("r")]
    assert [names[i] for i in same] == [f"r{i:02}" for i in range(16)]
    assert set(np.diff(same)) == {2, 3}
    assert {of for run, of in order if run.startswith("planted-03")} == {"p03"}
    assert script.order(16, 8, 23) == order != script.order(16, 8, 24)


def test_the_plan_for_a_gpu_has_the_planted_sweeps_alone_where_anything_is_planted() -> None:
    plans = script.plans(str(ROOT / "tests/gpu/repeated.yaml"), "cuda")
    assert [plan["run"] for plan in plans] == ["p00", "p01", "p03", "p10"]
    sweeps = [{(s, d) for s, d, *_ in plan["shards"]} for plan in plans]
    planted = {("copy_planted", "float"), ("copy_planted_wide", "float4")}
    assert sweeps[1:] == [planted] * 3
    assert planted < sweeps[0]
    assert len(sweeps[0]) == len(plans[0]["shards"]) == 6
    digests = {plan["shards"][-1][4]["kernel_digest"] for plan in plans[1:]}
    assert len(digests) == 3


def kept_in(out: Path, cache: Path) -> Path:
    """The folder `out`, whose runtimes keep what they compile in `cache`."""
    cache.mkdir(exist_ok=True)
    out.mkdir(exist_ok=True)
    (out / script.record_run.cache_of(out).name).symlink_to(cache)
    return out


def test_runs_are_recorded_and_packed(
    tmp_path: Path,
    opencl_cache: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    plan, out = tmp_path / "plan.json", kept_in(tmp_path / "out", opencl_cache)
    order = script.order(1, 1, 1)[:2]
    told = [p for p in script.plans(CPU, "opencl") if p["run"] in dict(order).values()]
    plan.write_text(json.dumps({"plans": told, "runs": order}))
    script.measure(plan, out, 300.0)
    runs = [entry["run"] for entry in json.loads((out / "runs.json").read_text())]
    assert runs[0] == "r00"
    assert runs[1].startswith("planted-")
    tables = {p.parts[-3]: read_shard(p)[0] for p in (out / "r00").rglob("*.parquet")}
    assert set(tables) == {"copy_planted", "copy2d_coalesced"}
    assert all(set(t.column("status").to_pylist()) == {"ok"} for t in tables.values())
    [shard] = (out / runs[1]).rglob("*.parquet")
    table, metadata = read_shard(shard)
    assert table.column("cell_key") == tables["copy_planted"].column("cell_key")
    assert metadata["params"]["folder"].endswith(f"p{runs[1][8:10]}/copy_planted")
    packed = set()
    for part in (out / "part-0.tar", out / "part-1.tar"):
        with tarfile.open(part) as archive:
            packed |= {name.split("/")[0] for name in archive.getnames()}
    assert packed == {"runs.json", *runs}
    # What there was no time for is said.
    monkeypatch.setattr(script.record_run, "build_all", lambda *_: None)
    script.measure(plan, out, -1.0)
    assert "the time is over before r00" in capsys.readouterr().out


def row(planted: str, ratio: float, **other: Any) -> dict[str, Any]:
    """Of a pair whose B takes `ratio` as long, give or take a little."""
    noise = np.random.default_rng(5).uniform(0.999, 1.001, (8, 2))
    b_s = (ratio * noise).tolist()
    own = {"a_s": np.ones((8, 2)).tolist(), "b_s": b_s, "status": "ok", "message": None}
    return {"planted": planted, **own, **other}


def test_what_was_measured_of_each_planted_number_is_judged_together() -> None:
    rows = [row("p10", 1.1), row("p00", 1.0), row("p00", 1.0, status="timeout", a_s=[], b_s=[])]
    planted, none = judging.judged_rows(rows)
    assert (planted["planted"], planted["verdict"], planted["beyond"]) == ("p10", "slower", True)
    assert (none["planted"], none["verdict"], none["beyond"]) == ("p00", "same", False)
    assert planted["estimate"] == pytest.approx(np.log(1.1), abs=1e-3)


def test_pairs_of_a_plan_are_measured_beside_what_nothing_is_planted_in(
    tmp_path: Path, opencl_cache: Path
) -> None:
    plans = [p for p in script.plans(CPU, "opencl") if p["run"] in ("p00", "p10")]
    out = kept_in(tmp_path, opencl_cache) / "samples.json"
    rows = list(judging.measured(plans, 4, out, 300.0))
    assert [row["planted"] for row in rows] == ["p10"] * 8 + ["p00"] * 8
    assert {row["status"] for row in rows} == {"ok"}
    assert len(list(judging.judged_rows(json.loads(json.dumps(rows))))) == 16
