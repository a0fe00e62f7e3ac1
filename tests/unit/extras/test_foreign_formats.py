"""Exports that other programs read: T4, Kernel Tuner's cache, tables of vLLM and Triton."""

import contextlib
import io
import json
import re
import shutil
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from conftest import record
from gpushmoo import ExportError
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import best_of_dataset
from gpushmoo.core.schema import GROUP, Status
from gpushmoo.exporting.choices import ExportGroup, groups_of
from gpushmoo.exporting.vocabulary import INVALIDITY
from gpushmoo.exporting.write import write_exports
from gpushmoo.extras.foreign_formats.loaded import triton_table, vllm_tables
from gpushmoo.extras.foreign_formats.results import cache_text, covers_all_combinations, t4_results
from gpushmoo.storage.dataset import partitions
from synthetic import write_shard
from test_exporting import FAILED, _kernel, close, group, recorded_groups
from test_exporting import dataset as dataset  # a fixture


def test_t4_has_every_way_a_cell_ends_but_those_that_are_no_result() -> None:
    told = t4_results(group({8: close(1.0), **FAILED}), "run")
    found = {r["configuration"]["block_x"]: r["invalidity"] for r in told["results"]}
    expected = {v: INVALIDITY[s] for v, s in FAILED.items() if s in INVALIDITY}
    assert found == {8: "correct", **expected}
    left_out = {Status.NOT_SEARCHED, Status.SKIPPED, Status.THROTTLED, Status.DEVICE_LOST}
    assert set(Status) - set(INVALIDITY) == left_out
    assert told["metadata"]["timeunit"] == "milliseconds"
    [ok] = [r for r in told["results"] if r["invalidity"] == "correct"]
    assert ok["times"]["runtimes"] == pytest.approx([990.0, 1000.0, 1010.0])
    assert ok["times"]["benchmark"] == pytest.approx(6000.0)
    measured = {m["name"]: (m["value"], m["unit"]) for m in ok["measurements"]}
    assert measured == {
        "time": (1000.0, "ms"),
        "time_low": (pytest.approx(0.9 * 990.0), "ms"),
        "time_high": (pytest.approx(1.2 * 1010.0), "ms"),
        "bandwidth": (5.0, "GB/s"),
        "bandwidth_low": (pytest.approx(5 / 1.2 / 1.01), "GB/s"),
        "bandwidth_high": (pytest.approx(5 / 0.9 / 0.99), "GB/s"),
        "copy_bandwidth": (7.0, "GB/s"),
    }
    assert ok["correctness"] == 1.0
    assert all(r["correctness"] == 0.0 for r in told["results"] if r is not ok)
    left = told["metadata"]["not_recorded"]
    assert left
    assert all(r["times"][name] == 0.0 for r in told["results"] for name in left)


def test_a_cache_ends_as_kernel_tuner_looks_for_and_is_whole() -> None:
    text = cache_text(group({8: close(1.0), **FAILED}, width=512))
    assert text.endswith("}\n}")
    cache = json.loads(text)
    assert (cache["kernel_name"], cache["problem_size"]) == ("copy", [512, 1024])
    assert cache["tune_params"] == {"block_x": [8, *FAILED]}
    assert cache["cache"]["8"]["time"] == 1000.0
    words = {
        INVALIDITY[s]: cache["cache"][str(v)]["time"] for v, s in FAILED.items() if s in INVALIDITY
    }
    assert words == {
        "compile": "CompilationFailedConfig",
        "constraints": "InvalidConfig",
        "correctness": "RuntimeFailedConfig",
        "runtime": "RuntimeFailedConfig",
        "timeout": "RuntimeFailedConfig",
    }
    full = group({8: close(1.0), 16: Status.TIMEOUT})
    [sparse] = groups_of(full.cells.assign(block_y=[1, 2]))
    assert not covers_all_combinations(sparse)
    assert covers_all_combinations(full)
    assert not covers_all_combinations(group({8: close(1.0), 16: Status.NOT_SEARCHED}))


def test_kernel_tuner_replays_a_record_and_finds_its_winner(tmp_path: Path) -> None:
    """In its own simulation mode, which looks every configuration up in the cache file."""
    tuner = pytest.importorskip("kernel_tuner", reason="kernel-tuner is not installed")
    recorded = record("nvidia-h200")
    kernels = recorded / "copy2d_coalesced/float", recorded / "block_eq_partition/float4"
    aggregate([p for k in kernels for p in sorted(k.glob("*.parquet"))], tmp_path / "dataset")
    winners = {
        tuple(row[c] for c in GROUP): row
        for row in best_of_dataset(tmp_path / "dataset").to_pylist()
        if row["is_fastest"]
    }
    file = tmp_path / "cache.json"
    replayed = 0
    for one in (g for k in partitions(tmp_path / "dataset") for g in recorded_groups(tmp_path, k)):
        file.write_text(cache_text(one))
        cache = json.loads(file.read_text())
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            results, environment = tuner.tune_kernel(
                cache["kernel_name"],
                "__global__ void recorded() {}",
                tuple(cache["problem_size"]),
                [],
                cache["tune_params"],
                cache=str(file),
                simulation_mode=True,
                lang="CUDA",
                quiet=True,
            )
        # All of the sweep, also what has no time.
        assert len(results) == len(one.cells)
        winner, fastest = winners.pop(tuple(one.key.values())), environment["best_config"]
        assert [fastest[axis] for axis in one.axes] == [winner[axis] for axis in one.axes]
        assert fastest["time"] == pytest.approx(one.fastest["median_s"] * 1e3, rel=1e-12)
        replayed += len(results)
    assert not winners
    # Four groups of 31 × 31 shapes, and eight of 111 numbers of blocks.
    assert replayed == 4 * 31**2 + 8 * 111


@pytest.fixture(scope="module")
def exported(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_exports(dataset, "made", tmp_path_factory.mktemp("out") / "export").folder


def schema(name: str) -> Any:
    """A schema of T4 out of Kernel Tuner's wheel, which is a requirement of the tests."""
    spec = find_spec("kernel_tuner")
    if spec is None or spec.origin is None:
        pytest.skip("kernel-tuner is not installed")
    file = Path(spec.origin).parent / f"schema/T4/1.0.0/{name}-schema.json"
    return json.loads(file.read_text())


def test_all_of_t4_is_as_its_schemas_say(exported: Path) -> None:
    results = jsonschema.Draft202012Validator(schema("results"))
    metadata = jsonschema.Draft202012Validator(schema("metadata"))
    files = sorted((exported / "t4").glob("*.json"))
    assert len(files) == 9
    for file in files:
        told = json.loads(file.read_text())
        (metadata if file.name == "metadata.json" else results).validate(told)
        assert told["schema_version"] == "1.0.0"
    # A schema that takes anything would have proved nothing.
    broken = t4_results(group({8: close(1.0)}), "run")
    broken["results"][0]["invalidity"] = "ok"
    with pytest.raises(jsonschema.ValidationError):
        results.validate(broken)


def test_a_folder_with_something_else_is_never_replaced(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = write_exports(dataset, "made", out)
    (out / ".snakemake_timestamp").touch()
    (out / "t4/stale.json").write_text("{}")
    second = write_exports(dataset, "made", out, ["t4"])
    assert {p.parent.name for p in second.files} == {"t4"}
    # Nothing stale of the format that is written again, and all of the others.
    assert {p for p in out.rglob("[!.]*") if p.is_file()} == {*first.files}
    assert len(first.files) == 8 + 8 + 1 + 2 + 1 + 4 + 1
    (out / "mine.txt").write_text("mine")
    with pytest.raises(ExportError, match=r"contains 'mine\.txt', which no export wrote"):
        write_exports(dataset, "made", out)
    with pytest.raises(ExportError, match="which no export wrote"):
        write_exports(dataset, "made", shutil.copytree(dataset, tmp_path / "copy"))
    with pytest.raises(ExportError, match="is a file"):
        write_exports(dataset, "made", out / "mine.txt")
    assert (out / "mine.txt").read_text() == "mine"


def test_a_group_without_a_verified_cell_is_named_and_has_its_t4_file(tmp_path: Path) -> None:
    # No block of this many threads is allowed.
    path = tmp_path / "cells/0000-of-0001.parquet"
    axes = {"block_x": [64], "block_y": [64]}
    write_shard(path, "copy2d_coalesced", "float", axes=axes, variants=("element",))
    aggregate([path], tmp_path / "dataset")
    done = write_exports(tmp_path / "dataset", "made", tmp_path / "out", ["t4", "kernel-tuner"])
    assert done.notes == (
        "copy2d_coalesced element float 1024x1024 warm on NVIDIA H200: no launch was verified "
        "(1 too_many_threads).",
    )
    assert len(done.files) == 3
    with pytest.raises(ExportError, match="no verified launch to choose: copy2d_coalesced element"):
        write_exports(tmp_path / "dataset", "made", tmp_path / "other", ["header"])
    assert not (tmp_path / "other").exists()


def test_a_table_for_vllm_has_the_launch_of_each_size(dataset: Path, tmp_path: Path) -> None:
    out = write_exports(dataset, "made", tmp_path / "out", ["vllm"]).folder / "vllm"
    told = json.loads((out / "holds.json").read_text())
    assert told["hardware"]["hardware_description"][0]["name"] == "NVIDIA H200"
    assert told["environment"]["device_query"]["drivers"]
    for table in told["tables"]:
        assert "device_name=NVIDIA_H200" in table["file"]
        content = json.loads((out / table["file"]).read_text())
        # As vLLM reads it.
        content.pop("triton_version", None)
        by_size = {int(key): value for key, value in content.items()}
        shapes = {shape["height"]: shape for shape in table["shapes"]}
        assert by_size.keys() == shapes.keys()
        for size, launch in by_size.items():
            assert launch == shapes[size]["launch"]
            assert shapes[size]["tied"]


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ([(512, 512), (1024, 1024)], {"": ["512", "1024"]}),
        ([(1, 64), (1, 32)], {"": ["32", "64"]}),
        ([(8, 64), (8, 32)], {"M=8": ["32", "64"]}),
        ([(8, 64), (16, 64)], {"N=64": ["8", "16"]}),
        ([(8, 64), (8, 32), (16, 64)], {"N=64": ["8", "16"], "N=32": ["8"]}),
    ],
)
def test_tables_by_differing_side(
    sizes: list[tuple[int, int]], names: dict[str, list[str]]
) -> None:
    groups = [
        ExportGroup({**one.key, "height": height, "width": width}, one.cells, one.axes)
        for height, width in sizes
        for one in [group({8: (2.0, 1.9, 2.1), 16: (1.0, 0.9, 1.1)})]
    ]
    found = {
        ",".join(re.findall(r"[MN]=\d+", table.name)): [*table.content]
        for table in vllm_tables(groups)
    }
    assert found == names


def test_each_size_of_a_table_has_the_plain_launch_that_is_near_its_fastest() -> None:
    near, far = (2.0, 1.9, 2.1), (3.0, 2.9, 3.1)
    groups = [
        group({8: near, 16: (1.95, 1.85, 2.05)}, 1024),
        group({8: near, 16: far}, 2048),
        group({8: far, 16: near}, 4096, over_cache=9.0),
    ]
    [table] = vllm_tables(groups)
    assert [launch["block_x"] for launch in table.content.values()] == [16, 8, 16]


def test_triton_takes_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = group({8: (2.0, 1.9, 2.1), 16: (1.0, 0.9, 1.1)})
    cells = one.cells.assign(num_warps=8)
    table = triton_table("add.autotune.json", ExportGroup(one.key, cells, ["block_x", "num_warps"]))
    [[config, times]] = table.content["configs_timings"]
    assert (config["kwargs"], config["num_warps"], times[0]) == ({"block_x": 16}, 8, 1e3)
    assert table.holds["shapes"][0]["launch"] == {"block_x": 16, "num_warps": 8}
    autotuner = pytest.importorskip("triton.runtime.autotuner", reason="Triton is not installed")
    triton = pytest.importorskip("triton")
    path = tmp_path / table.name
    path.write_text(json.dumps(table.content))
    cache = SimpleNamespace(get_file=lambda name: str(path))
    monkeypatch.setattr(autotuner, "get_cache_manager", lambda key: cache)
    monkeypatch.setattr(
        autotuner,
        "driver",
        SimpleNamespace(
            active=SimpleNamespace(
                get_current_target=lambda: triton.backends.compiler.GPUTarget("cuda", 90, 32)
            )
        ),
    )
    kernel = triton.autotune([triton.Config({"block_x": 32})], key=[])(triton.jit(_kernel))
    assert kernel.check_disk_cache((1024,), kernel.configs, lambda: pytest.fail("measured"))
    assert kernel.cache[(1024,)].all_kwargs() == {
        "block_x": 16,
        "num_warps": 8,
        "num_ctas": 1,
        "num_stages": 3,
    }
